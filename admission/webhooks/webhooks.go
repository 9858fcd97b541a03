// Package webhooks has the entries of Opgate's webhook configurations: which writes the API server asks Opgate about.
// The release creates the configurations, with the names of the entries alone; the leader completes them.
package webhooks

import (
	_ "embed"
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/olm"
)

// Entry is an entry of either kind of configuration; a validating one has no reinvocationPolicy.
type Entry = admissionregistrationv1.MutatingWebhook

// Settings are what an installation chooses. All fields but the last are required.
type Settings struct {
	// OLM is the user name of OLM.
	OLM string
	// FailurePolicy is that of the entries that do not have to be Ignore.
	FailurePolicy admissionregistrationv1.FailurePolicyType
	// TimeoutSeconds is how long the API server waits for an answer, from 1 to 30.
	TimeoutSeconds int32
	// ExternalDefinition has OperatorPolicies judged in the version in which they are written: another program owns
	// their definition, which then does not convert them. Default: in the stored one.
	ExternalDefinition bool
}

// Configurations are the entries of both configurations, in the order in which the API server calls them.
type Configurations struct {
	Mutating   []Entry `json:"mutating"`
	Validating []Entry `json:"validating"`
}

//go:embed webhooks.yaml
var entries []byte

// isOLM is whether a request is OLM's. The name alone is no evidence. OLM may escalate ClusterRoles, since it makes the
// roles of operators; who else may do that is cluster admin, and gains nothing by the name. Who may not is judged like
// everybody else.
const isOLM = "request.userInfo.username == '%s' && " +
	"authorizer.group('rbac.authorization.k8s.io').resource('clusterroles').check('escalate').allowed()"

// New returns the entries with all fields, as the API server stores them, but for those that others write:
// namespaceSelector and clientConfig belong to the release, and to package certs.
func New(s Settings) (Configurations, error) {
	var c Configurations
	if err := yaml.UnmarshalStrict(entries, &c); err != nil {
		return Configurations{}, fmt.Errorf("read the entries of the webhook configurations: %w", err)
	}
	for i := range c.Mutating {
		s.complete(&c.Mutating[i])
		c.Mutating[i].ReinvocationPolicy = new(admissionregistrationv1.IfNeededReinvocationPolicy)
	}
	for i := range c.Validating {
		s.complete(&c.Validating[i])
	}
	return c, nil
}

// complete sets the fields that the file does not have.
func (s *Settings) complete(e *Entry) {
	fill := strings.NewReplacer("$(olm)", fmt.Sprintf(isOLM, s.OLM),
		"$(harmless)", "['"+strings.Join(olm.HarmlessAnnotations(), "', '")+"']",
		"$(kept)", "['"+strings.Join(metakey.Kept(), "', '")+"']")
	for i := range e.MatchConditions {
		e.MatchConditions[i].Expression = fill.Replace(e.MatchConditions[i].Expression)
	}
	if s.ExternalDefinition && e.Rules[0].Resources[0] == "operatorpolicies" {
		e.Rules[0].APIVersions = []string{"*"}
	}
	if e.FailurePolicy == nil {
		e.FailurePolicy = &s.FailurePolicy
	}
	e.TimeoutSeconds = &s.TimeoutSeconds
	e.MatchPolicy = new(admissionregistrationv1.Equivalent)
	e.SideEffects = new(admissionregistrationv1.SideEffectClassNone)
	e.AdmissionReviewVersions = []string{"v1"}
	e.ObjectSelector = &metav1.LabelSelector{}
}
