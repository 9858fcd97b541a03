package chart_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
				for _, hook := range hooksOf(t, o) {
					same(t, hook.Name, *hook.FailurePolicy, admissionregistrationv1.Ignore)
				}
			},
		},
		{
			name:   "timeoutSeconds",
			values: "webhooks: {timeoutSeconds: 9}",
			check: func(t *testing.T, o objects) {
				for _, hook := range hooksOf(t, o) {
					same(t, hook.Name, *hook.TimeoutSeconds, 9)
				}
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
			name:   "annotations of webhook configurations, besides those that the pods read",
			values: `{webhooks: {annotations: {admissions.enforcer/disabled: null, opgate.io/webhook-rules: "{}", opgate.io/webhook-fields: "{}", a: b}}, certificates: {mode: cert-manager}}`,
			check: func(t *testing.T, o objects) {
				hooksOf(t, o) // with rules
				for _, configuration := range []metav1.Object{
					one[*admissionregistrationv1.MutatingWebhookConfiguration](t, o, "opgate"),
					one[*admissionregistrationv1.ValidatingWebhookConfiguration](t, o, "opgate"),
				} {
					annotations := configuration.GetAnnotations()
					delete(annotations, "opgate.io/webhook-rules")
					delete(annotations, "opgate.io/webhook-fields")
					same(t, "annotations", annotations,
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
	if *hook.Rules[0].Scope == admissionregistrationv1.ClusterScope {
		return nil
	}
	return excluding(names...)
}

// checkIdentity wants one account of OLM in the arguments of the server, in its permissions, and in every condition
// that goes by who writes; and that no condition trusts its name alone (threat O16).
func checkIdentity(t *testing.T, o objects, username, account string) {
	t.Helper()
	same(t, "--olm-identity", flagsOf(t, o)["olm-identity"], []string{username})
	const entitled = "authorizer.group('rbac.authorization.k8s.io').resource('clusterroles').check('escalate').allowed()"
	isOLM := "request.userInfo.username == '" + username + "' && " + entitled
	conditions := 0
	for _, hook := range hooksOf(t, o) {
		for _, condition := range hook.MatchConditions {
			expression := strings.ReplaceAll(strings.Join(strings.Fields(condition.Expression), " "), "( ", "(")
			if !strings.Contains(expression, "userInfo") && !strings.Contains(expression, "serviceaccount") {
				continue
			}
			conditions++
			if want := map[string]string{
				"olm": isOLM, "not-olm": "!(" + isOLM + ")", "not-generated": "!(" + isOLM +
					") || request.operation != 'CREATE'",
				"not-pending": "!(" + isOLM +
					") || request.operation != 'CREATE' || object.?spec.?approved.orValue(true) != false",
			}[condition.Name]; expression != want {
				t.Errorf("%s: condition %s is\n%s\nwant\n%s", hook.Name, condition.Name, expression, want)
			}
		}
	}
	same(t, "conditions about who writes", conditions, 9)
	for _, rule := range one[*rbacv1.ClusterRole](t, o, "opgate-admission").Rules {
		if slices.Contains(rule.Resources, "serviceaccounts") {
			same(t, "accounts that may be read", rule.ResourceNames, []string{account})
		}
	}
}

// TestWebhookDefaults checks the defaults of failurePolicy and the namespace selector.
// TestWebhookManifest of package admission checks the rest.
func TestWebhookDefaults(t *testing.T) {
	for _, hook := range hooksOf(t, defaults) {
		want := admissionregistrationv1.Fail
		if strings.HasPrefix(hook.Name, "generated-") || strings.HasPrefix(hook.Name, "steps-") {
			want = admissionregistrationv1.Ignore
		}
		same(t, hook.Name, *hook.FailurePolicy, want)
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
	ignored := slices.DeleteFunc(hooksOf(t, defaults), func(h admissionregistrationv1.ValidatingWebhook) bool {
		return *h.FailurePolicy == admissionregistrationv1.Fail
	})
	same(t, "webhooks with failurePolicy Ignore", len(ignored), 3)
}

// TestWebhookNumber holds what the manifest states about itself to what is in it.
func TestWebhookNumber(t *testing.T) {
	text, err := os.ReadFile(checkout.Webhooks())
	if err != nil {
		t.Fatal(err)
	}
	comment := strings.Join(strings.Fields(strings.ReplaceAll(string(text), "\n#", "\n")), " ")
	hooks := hooksOf(t, defaults)
	if want := "There are constantly eighteen entries, fifteen without ordering"; len(hooks) != 18 ||
		!strings.Contains(comment, want) {
		t.Errorf("there are %d entries, and the comment does not say so, or does not say %q", len(hooks), want)
	}
	kinds, groups := map[string]bool{}, map[string]bool{}
	for _, hook := range hooks {
		for _, rule := range hook.Rules {
			groups[rule.APIGroups[0]] = true
			for _, resource := range rule.Resources {
				kinds[strings.TrimSuffix(resource, "/status")] = true
			}
		}
	}
	if want := "eleven kinds of three API groups"; len(kinds) != 11 || len(groups) != 3 ||
		!strings.Contains(comment, want) {
		t.Errorf("there are kinds %v of groups %v, and the comment does not say so, or does not say %q", kinds, groups,
			want)
	}
}

// TestWebhookRules looks at what the entries for ClusterServiceVersions, sources, Constraints, Policies and PolicySets
// are called for.
func TestWebhookRules(t *testing.T) {
	type rule struct {
		Versions, Resources, Operations, Scope string
	}
	rules := map[string]rule{}
	for _, hook := range hooksOf(t, defaults) {
		var operations []string
		for _, operation := range hook.Rules[0].Operations {
			operations = append(operations, string(operation))
		}
		r := hook.Rules[0]
		rules[hook.Name] = rule{strings.Join(r.APIVersions, " "), strings.Join(r.Resources, " "),
			strings.Join(operations, " "), string(*r.Scope)}
	}
	for name, want := range map[string]rule{
		"clusterserviceversions.opgate.io":       {"*", "clusterserviceversions", "CREATE UPDATE", "Namespaced"},
		"steps-clusterserviceversions.opgate.io": {"*", "clusterserviceversions", "CREATE", "Namespaced"},
		// v2 is the same, and the API server makes it into v1 before it asks.
		"constraints.opgate.io":    {"v1", "constraints", "CREATE UPDATE", "Cluster"},
		"catalogsources.opgate.io": {"*", "catalogsources", "CREATE UPDATE", "Namespaced"},
		"operatorgroups.opgate.io": {"*", "operatorgroups", "CREATE UPDATE", "Namespaced"},
		"policies.opgate.io":       {"*", "policies", "CREATE UPDATE", "Namespaced"},
		"policysets.opgate.io":     {"*", "policysets", "CREATE UPDATE", "Namespaced"},
		// Those of OLM v1, whose versions change.
		"clusterextensions.opgate.io": {"*", "clusterextensions", "CREATE UPDATE", "Cluster"},
		"clustercatalogs.opgate.io":   {"*", "clustercatalogs", "CREATE UPDATE", "Cluster"},
	} {
		same(t, name, rules[name], want)
	}
}
