package chart_test

import (
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/opgate/opgate/admission/webhooks"
)

// extensionsHook is the entry for ClusterExtensions of OLM v1.
const extensionsHook = "clusterextensions.opgate.io"

// admissionCases are values about the webhook configurations.
func admissionCases() []valueCase {
	return []valueCase{
		{
			name:   "failurePolicy Ignore is for those that fail closed",
			values: "webhooks: {failurePolicy: Ignore}",
			check: func(t *testing.T, o objects) {
				hooksOf(t, o)
				same(t, "--webhook-failure-policy", flagsOf(t, o)["webhook-failure-policy"], []string{"Ignore"})
			},
		},
		{
			name:   "timeoutSeconds",
			values: "webhooks: {timeoutSeconds: 9}",
			check: func(t *testing.T, o objects) {
				hooksOf(t, o)
				same(t, "--webhook-timeout", flagsOf(t, o)["webhook-timeout"], []string{"9s"})
			},
		},
		{
			name:   "webhook configurations without an owner",
			values: "webhooks: {ownedByNamespace: false}",
			check: func(t *testing.T, o objects) {
				same(t, "--webhooks-owned-by-namespace", flagsOf(t, o)["webhooks-owned-by-namespace"],
					[]string{"false"})
			},
		},
		{
			name:   "annotations of webhook configurations",
			values: `{webhooks: {annotations: {admissions.enforcer/disabled: null, a: b}}, certificates: {mode: cert-manager}}`,
			check: func(t *testing.T, o objects) {
				for _, configuration := range []metav1.Object{
					one[*admissionregistrationv1.MutatingWebhookConfiguration](t, o, "opgate"),
					one[*admissionregistrationv1.ValidatingWebhookConfiguration](t, o, "opgate"),
				} {
					same(t, "annotations", configuration.GetAnnotations(),
						map[string]string{"a": "b", "cert-manager.io/inject-ca-from": namespace + "/opgate-webhook"})
				}
			},
		},
		{
			name:   "excluded namespaces are named besides our own",
			values: "policy: {excludedNamespaces: [sandbox, gate, kube-system]}",
			check: func(t *testing.T, o objects) {
				for _, hook := range hooksOf(t, o) {
					same(t, hook.Name, hook.NamespaceSelector, selectorOf(hook, namespace, "sandbox", "kube-system"))
				}
				// The server knows its own by --namespace.
				same(t, "--excluded-namespace", flagsOf(t, o)["excluded-namespace"],
					[]string{"sandbox", "gate", "kube-system"})
			},
		},
		{
			name:   "objects of OLM v1 are not judged, in YAML without quotes",
			values: "olmv1: off",
			check: func(t *testing.T, o objects) {
				for _, hook := range hooksOf(t, o) {
					same(t, hook.Name, strings.HasPrefix(hook.Name, "cluster") &&
						hook.Name != "clusterserviceversions.opgate.io", false)
				}
			},
		},
		{
			name:   "OLM's account is the same for API server and server",
			values: `olm: {identity: "system:serviceaccount:a:b.c", namespaceUID: 7d9c}`,
			check: func(t *testing.T, o objects) {
				checkIdentity(t, o, "system:serviceaccount:a:b.c", "b.c")
				same(t, "--olm-namespace-uid", flagsOf(t, o)["olm-namespace-uid"], []string{"7d9c"})
			},
		},
	}
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
