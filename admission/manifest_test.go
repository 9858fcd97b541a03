package admission

import (
	"bytes"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/admission/webhooks"
	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/snapshot"
)

// shipped is one webhook of an installation.
type shipped struct {
	webhooks.Entry
	// path is that of the endpoint, which pods derive from the name.
	path string
}

// shippedWebhooks returns the mutating and validating webhooks that are shipped. Manifests have their names and
// namespaceSelectors, and nothing that takes effect before a replica is ready.
func shippedWebhooks(t testing.TB) []shipped {
	t.Helper()
	readWebhooks.Do(func() { allShipped = readShipped(t) })
	return allShipped
}

var (
	readWebhooks sync.Once
	allShipped   []shipped
)

func readShipped(t testing.TB) []shipped {
	t.Helper()
	all, err := webhooks.New(webhooks.Settings{OLM: olmUser, FailurePolicy: admissionregistrationv1.Fail, TimeoutSeconds: 5})
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile("../manifests/base/webhooks.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var hooks []shipped
	for i, document := range bytes.Split(data, []byte("\n---\n")) {
		var configuration struct {
			Webhooks []webhooks.Entry `json:"webhooks"`
		}
		if err := yaml.Unmarshal(document, &configuration); err != nil {
			t.Fatal(err)
		}
		verb, entries := "/mutate/", all.Mutating
		if i == 1 {
			verb, entries = "/validate/", all.Validating
		}
		if len(configuration.Webhooks) != len(entries) {
			t.Fatalf("%s: manifests have %d entries, the program %d", verb, len(configuration.Webhooks), len(entries))
		}
		for j, h := range entries {
			in := configuration.Webhooks[j]
			// A path would be owned by the applier's field manager, and the pods could not add their token. They derive
			// it from the name.
			if in.Name != h.Name || in.ClientConfig.Service.Path != nil || len(in.Rules) > 0 || len(in.MatchConditions) > 0 ||
				len(h.Rules) != 1 || len(h.Rules[0].Resources) != 1 {
				t.Fatalf("%s: want one rule with one resource, and in manifests neither rules nor conditions nor a path, which pods write (threat G20)", h.Name)
			}
			h.NamespaceSelector = in.NamespaceSelector
			hooks = append(hooks, shipped{h, verb + strings.TrimSuffix(h.Name, ".opgate.io")})
		}
	}
	return hooks
}

// TestWebhookManifest checks in the entries of the webhook configurations what makes failurePolicy Fail acceptable and the gate
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
		if len(h.ObjectSelector.MatchLabels)+len(h.ObjectSelector.MatchExpressions)+len(selector.MatchLabels) > 0 {
			t.Errorf("%s selects by labels that a tenant may set (threat G12)", h.Name)
		}
		for _, e := range selector.MatchExpressions {
			if e.Key != "kubernetes.io/metadata.name" {
				t.Errorf("%s selects namespaces by %s, which a tenant may set (threat G12)", h.Name, e.Key)
			}
		}
		for _, r := range h.Rules {
			every := []string{"*"}
			switch { // the API server converts other versions to this one
			case slices.Equal(r.Resources, []string{snapshot.OperatorPolicies.Resource}):
				every = []string{policyv1beta2.Version}
			case slices.Equal(r.Resources, []string{snapshot.Constraints.Resource}):
				every = []string{constraintv1.Version}
			case slices.Equal(r.Resources, []string{snapshot.Policies.Resource}),
				slices.Equal(r.Resources, []string{snapshot.OperatorGroups.Resource}):
				every = []string{"v1"}
			case slices.Equal(r.Resources, []string{snapshot.PolicySets.Resource}):
				every = []string{"v1beta1"}
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
