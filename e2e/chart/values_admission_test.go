package chart_test

import (
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// admissionCases are values about the webhook configurations.
func admissionCases() []valueCase {
	return []valueCase{
		{
			name:   "failurePolicy Ignore is for those that fail closed",
			values: "failurePolicy: Ignore",
			check: func(t *testing.T, o objects) {
				for _, hook := range hooksOf(t, o) {
					same(t, hook.Name, *hook.FailurePolicy, admissionregistrationv1.Ignore)
				}
			},
		},
		{
			name:   "timeoutSeconds",
			values: "timeoutSeconds: 9",
			check: func(t *testing.T, o objects) {
				for _, hook := range hooksOf(t, o) {
					same(t, hook.Name, *hook.TimeoutSeconds, 9)
				}
			},
		},
		{
			name:   "excluded namespaces are named besides our own",
			values: "excludedNamespaces: [sandbox, gate, kube-system]",
			check: func(t *testing.T, o objects) {
				for _, hook := range hooksOf(t, o) {
					same(t, hook.Name, hook.NamespaceSelector, excluding(namespace, "sandbox", "kube-system"))
				}
			},
		},
		{
			name:   "OLM's identities are the same for API server and server",
			values: `olm: {identities: ["system:serviceaccount:a:olm", "olm@example.com"]}`,
			check: func(t *testing.T, o objects) {
				same(t, "--olm-identity", flagsOf(t, o)["olm-identity"], []string{"system:serviceaccount:a:olm", "olm@example.com"})
				checkIdentities(t, o, "'system:serviceaccount:a:olm','olm@example.com'")
			},
		},
	}
}

func excluding(names ...string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
		Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpNotIn, Values: names,
	}}}
}

// checkIdentities wants a list of names, in CEL without blanks, wherever conditions name somebody.
func checkIdentities(t *testing.T, o objects, want string) {
	t.Helper()
	lists := 0
	for _, hook := range hooksOf(t, o) {
		for _, condition := range hook.MatchConditions {
			if !strings.Contains(condition.Expression, "username") {
				continue
			}
			lists++
			expression := strings.Join(strings.Fields(condition.Expression), "")
			if !strings.Contains(expression, "request.userInfo.usernamein["+want+"]") {
				t.Errorf("%s: condition %s is %s, want it to name %s", hook.Name, condition.Name, condition.Expression, want)
			}
		}
	}
	same(t, "conditions that name somebody", lists, 5)
}

// TestWebhookDefaults looks at what failurePolicy and the namespace selector are when nobody says anything.
// TestWebhookManifest of package admission looks at the rest.
func TestWebhookDefaults(t *testing.T) {
	for _, hook := range hooksOf(t, defaults) {
		want := admissionregistrationv1.Fail
		if strings.HasPrefix(hook.Name, "generated-") {
			want = admissionregistrationv1.Ignore
		}
		same(t, hook.Name, *hook.FailurePolicy, want)
		same(t, hook.Name, hook.NamespaceSelector, excluding(namespace))
		same(t, hook.Name, hook.ClientConfig.Service.Namespace, namespace)
		if len(hook.ClientConfig.CABundle) > 0 {
			t.Errorf("%s has a caBundle, which is filled in at run time", hook.Name)
		}
	}
	ignored := slices.DeleteFunc(hooksOf(t, defaults), func(h admissionregistrationv1.ValidatingWebhook) bool {
		return *h.FailurePolicy == admissionregistrationv1.Fail
	})
	same(t, "webhooks that are ignored when nobody answers", len(ignored), 2)
}
