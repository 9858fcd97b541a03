package chart_test

import (
	"slices"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/opgate/opgate/admission/webhooks"
)

// hooksOf are all entries of both webhook configurations, as validating ones. They have no field that pods write.
func hooksOf(t *testing.T, o objects) []admissionregistrationv1.ValidatingWebhook {
	t.Helper()
	hooks := slices.Clone(one[*admissionregistrationv1.ValidatingWebhookConfiguration](t, o, "opgate").Webhooks)
	for _, m := range one[*admissionregistrationv1.MutatingWebhookConfiguration](t, o, "opgate").Webhooks {
		hooks = append(hooks, admissionregistrationv1.ValidatingWebhook{Name: m.Name, ClientConfig: m.ClientConfig,
			Rules: m.Rules, FailurePolicy: m.FailurePolicy, NamespaceSelector: m.NamespaceSelector,
			TimeoutSeconds: m.TimeoutSeconds, MatchConditions: m.MatchConditions})
	}
	for _, h := range hooks {
		if len(h.Rules)+len(h.MatchConditions) > 0 || h.FailurePolicy != nil || h.TimeoutSeconds != nil ||
			h.ClientConfig.Service.Path != nil {
			t.Errorf("webhook %s has fields that pods write, so that applying it again conflicts with them", h.Name)
		}
	}
	return hooks
}

func excluding(names ...string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
		Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpNotIn, Values: names,
	}}}
}

// selectorOf is the namespace selector that an entry has to have: what is in no namespace cannot be left out by one.
func selectorOf(hook admissionregistrationv1.ValidatingWebhook, names ...string) *metav1.LabelSelector {
	all, err := webhooks.New(webhooks.Settings{})
	if err != nil {
		panic(err)
	}
	for _, entry := range all.Validating {
		if entry.Name == hook.Name && *entry.Rules[0].Scope == admissionregistrationv1.ClusterScope {
			return nil
		}
	}
	return excluding(names...)
}

// checkIdentity wants one account of OLM in the arguments of the server and in its permissions.
func checkIdentity(t *testing.T, o objects, username, account string) {
	t.Helper()
	same(t, "--olm-identity", flagsOf(t, o)["olm-identity"], []string{username})
	for _, rule := range one[*rbacv1.ClusterRole](t, o, "opgate-admission").Rules {
		if slices.Contains(rule.Resources, "serviceaccounts") {
			same(t, "accounts that may be read", rule.ResourceNames, []string{account})
		}
	}
}

// TestWebhookDefaults checks the defaults of failurePolicy and the namespace selector.
// TestWebhookManifest of package admission checks what the pods add.
func TestWebhookDefaults(t *testing.T) {
	for _, hook := range hooksOf(t, defaults) {
		same(t, hook.Name, hook.NamespaceSelector, selectorOf(hook, namespace))
		same(t, hook.Name, hook.ClientConfig.Service.Namespace, namespace)
		if len(hook.ClientConfig.CABundle) > 0 {
			t.Errorf("%s has a caBundle, which is filled in at run time", hook.Name)
		}
	}
	for _, configuration := range []metav1.Object{
		one[*admissionregistrationv1.MutatingWebhookConfiguration](t, defaults, "opgate"),
		one[*admissionregistrationv1.ValidatingWebhookConfiguration](t, defaults, "opgate"),
	} {
		same(t, "whether AKS leaves its selectors alone",
			configuration.GetAnnotations()["admissions.enforcer/disabled"], "true")
	}
	same(t, "--webhook-failure-policy", flagsOf(t, defaults)["webhook-failure-policy"], []string{"Fail"})
}
