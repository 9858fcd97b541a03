package admission

import (
	"bytes"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/certs"
	"github.com/opgate/opgate/snapshot"
)

// shipped is one webhook in manifests/base/webhooks.yaml, with the rules that pods write.
type shipped struct {
	admissionregistrationv1.ValidatingWebhook
	// path is that of the endpoint, which pods derive from the name.
	path string
}

// shippedWebhooks returns the mutating and validating webhooks that are shipped.
func shippedWebhooks(t testing.TB) []shipped {
	t.Helper()
	data, err := os.ReadFile("../manifests/base/webhooks.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var hooks []shipped
	for _, document := range bytes.Split(data, []byte("\n---\n")) {
		var configuration struct {
			metav1.TypeMeta   `json:",inline"`
			metav1.ObjectMeta `json:"metadata"`
			Webhooks          []struct {
				admissionregistrationv1.ValidatingWebhook `json:",inline"`
				ReinvocationPolicy                        string `json:"reinvocationPolicy"`
			} `json:"webhooks"`
		}
		if err := yaml.UnmarshalStrict(document, &configuration); err != nil {
			t.Fatal(err)
		}
		rules, err := certs.ShippedRules(&configuration)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range configuration.Webhooks {
			if len(h.Rules) > 0 {
				t.Errorf("webhook %s takes effect before a replica is ready: it has rules %+v", h.Name, h.Rules)
			}
			// A path would be owned by the applier's field manager, and the pods could not add their token. They derive
			// it from the name.
			if h.Rules = rules[h.Name]; h.ClientConfig.Service.Path != nil || len(h.Rules) != 1 ||
				len(h.Rules[0].Resources) != 1 {
				t.Fatalf("%s: want one rule with one resource, and no path, which pods write (threat G20)", h.Name)
			}
			verb := "/validate/"
			if configuration.Kind == "MutatingWebhookConfiguration" {
				verb = "/mutate/"
			}
			hooks = append(hooks, shipped{h.ValidatingWebhook, verb + strings.TrimSuffix(h.Name, ".opgate.io")})
		}
	}
	return hooks
}

// TestWebhookManifest checks in manifests/base/webhooks.yaml what makes failurePolicy Fail acceptable and the gate
// complete: narrow rules, every version, no side effects, every endpoint called.
func TestWebhookManifest(t *testing.T) {
	var paths []string
	for _, h := range shippedWebhooks(t) {
		paths = append(paths, h.path)
		type settings struct {
			FailurePolicy admissionregistrationv1.FailurePolicyType
			MatchPolicy   admissionregistrationv1.MatchPolicyType
			SideEffects   admissionregistrationv1.SideEffectClass
			Timeout       int32
		}
		want := settings{admissionregistrationv1.Fail, admissionregistrationv1.Equivalent,
			admissionregistrationv1.SideEffectClassNone, 5}
		// Only what OLM creates as steps of a plan may pass while the gate is unavailable.
		onlyOLM := slices.ContainsFunc(h.MatchConditions, func(c admissionregistrationv1.MatchCondition) bool {
			return c.Name == "olm" && strings.HasPrefix(c.Expression, "request.userInfo.username == '") &&
				strings.HasSuffix(c.Expression,
					"' && authorizer.group('rbac.authorization.k8s.io').resource('clusterroles').check('escalate').allowed()")
		})
		if onlyOLM && slices.Equal(h.Rules[0].Operations,
			[]admissionregistrationv1.OperationType{admissionregistrationv1.Create}) {
			want.FailurePolicy = admissionregistrationv1.Ignore
		}
		if ignored := want.FailurePolicy == admissionregistrationv1.Ignore; ignored != IsStep(h.path) {
			t.Errorf("%s is called at %s: the endpoints of failurePolicy Ignore have paths, and memory, that no other has (threat O44)", h.Name, h.path)
		}
		if diff := cmp.Diff(want, settings{*h.FailurePolicy, *h.MatchPolicy, *h.SideEffects,
			*h.TimeoutSeconds}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", h.Name, diff)
		}
		var selector metav1.LabelSelector
		if h.NamespaceSelector != nil {
			selector = *h.NamespaceSelector
		}
		if h.ObjectSelector != nil || len(selector.MatchLabels) > 0 {
			t.Errorf("%s selects by labels that a tenant may set (threat G12)", h.Name)
		}
		for _, e := range selector.MatchExpressions {
			if e.Key != "kubernetes.io/metadata.name" {
				t.Errorf("%s selects namespaces by %s, which a tenant may set (threat G12)", h.Name, e.Key)
			}
		}
		for _, r := range h.Rules {
			every := []string{"*"}
			switch { // the API server converts our own kinds to this version
			case slices.Equal(r.Resources, []string{snapshot.OperatorPolicies.Resource}):
				every = []string{policyv1beta2.Version}
			case slices.Equal(r.Resources, []string{snapshot.Constraints.Resource}):
				every = []string{constraintv1.Version}
			}
			if !slices.Equal(r.APIVersions, every) {
				t.Errorf("%s leaves out versions of %q (threat G7)", h.Name, r.Resources)
			}
			for _, group := range r.APIGroups {
				if !slices.Contains([]string{"operators.coreos.com", "policy.open-cluster-management.io",
					"olm.operatorframework.io"}, group) {
					t.Errorf("%s matches group %q, which may be needed to start the gate itself (threat G15)", h.Name,
						group)
				}
			}
		}
	}
	handlers := slices.Sorted(maps.Keys(governedGate(t).Handlers()))
	slices.Sort(paths)
	paths = slices.Compact(paths)
	if diff := cmp.Diff(handlers, paths); diff != "" {
		t.Errorf("endpoints served (-) and called (+):\n%s", diff)
	}
}
