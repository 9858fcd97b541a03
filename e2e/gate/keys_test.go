package gate

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/internal/metakey"
)

// wantKeysKept writes each key of the table in docs/threats.md, as annotation and as label, to an object on which it is read (attacks s1,
// s2). A member of system:masters, and a tenant where a right is asked for, is refused what the table has as kept, and
// admitted elsewhere. Nothing is stored.
func wantKeysKept(t *testing.T, e *harness.Env, plan, policy *unstructured.Unstructured) {
	t.Helper()
	clients := map[cluster.User]crclient.Client{}
	for _, user := range []cluster.User{cluster.Admin, cluster.Tenant} {
		config, err := e.RESTConfig(user)
		if err != nil {
			t.Fatal(err)
		}
		if clients[user], err = crclient.New(config, crclient.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	named := func(apiVersion, kind, namespace, name string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{}
		u.SetAPIVersion(apiVersion)
		u.SetKind(kind)
		u.SetNamespace(namespace)
		u.SetName(name)
		return u
	}
	earlier := policy.DeepCopy()
	earlier.SetAPIVersion("policy.open-cluster-management.io/v1beta1")
	constraint, err := e.Create(t.Context(), harness.Object(`
apiVersion: operators.coreos.com/v1
kind: Constraint
metadata: {name: kept}
spec: {constraints: '[]'}`))
	if err != nil {
		t.Fatal(err)
	}
	objects := map[string][]*unstructured.Unstructured{
		"installplans": {plan}, "operatorpolicies": {policy, earlier}, "constraints": {constraint},
		"namespaces": {named("v1", "Namespace", "", plan.GetNamespace())},
		"secrets":    {named("v1", "Secret", cluster.OpgateNamespace, "opgate-kept")},
		"customresourcedefinitions": {named("apiextensions.k8s.io/v1", "CustomResourceDefinition", "",
			"constraints.operators.coreos.com")},
		"validatingwebhookconfigurations": {named("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "",
			"opgate")},
	}
	text, err := os.ReadFile("../../docs/threats.md")
	if err != nil {
		t.Fatal(err)
	}
	refused, free := 0, 0
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([a-z, ]+) \\| (with a right|anyone|Opgate alone|OLM alone): .*$").
		FindAllStringSubmatch(string(text), -1) {
		name, resources, by := row[1], row[2], row[3]
		user, says := cluster.Admin, ""
		switch {
		case slices.Contains(metakey.Kept(), name):
			says = "is kept by files of the control plane"
		case by == "with a right":
			user, says = cluster.Tenant, "annotation opgate.io/"
		case by != "anyone" || name == metakey.NamespaceName || strings.HasSuffix(name, "/"):
			continue // which no dry run of a single annotation shows
		}
		for _, resource := range strings.Split(resources, ", ") {
			for _, object := range objects[resource] {
				for _, field := range []string{"annotations", "labels"} {
					patch, err := json.Marshal(map[string]any{"metadata": map[string]any{field: map[string]any{name: "x"}}})
					if err != nil {
						t.Fatal(err)
					}
					if by == "with a right" && field == "labels" {
						continue
					}
					err = clients[user].Patch(t.Context(), object.DeepCopy(),
						crclient.RawPatch(types.MergePatchType, patch), crclient.DryRunAll)
					switch {
					case says == "" && err != nil:
						t.Errorf("%s of %s in %s is not free: %v", name, resource, field, err)
					case says == "":
						free++
					case err == nil || !strings.Contains(err.Error(), says):
						t.Errorf("%s of %s in %s: %v, want %q", name, object.GroupVersionKind(), field, err, says)
					default:
						refused++
					}
				}
			}
		}
	}
	if refused < 40 || free < 6 {
		t.Errorf("%d writes were refused and %d admitted", refused, free)
	}
}

// wantVersions wants each rule of a webhook and of an admission policy, compiled or loaded from files, to name versions
// of kinds that have several, and to see what conversion carries where it names two.
func wantVersions(t *testing.T, e *harness.Env, documents []string) {
	t.Helper()
	config, err := e.RESTConfig(cluster.Admin)
	if err != nil {
		t.Fatal(err)
	}
	_, lists, err := discovery.NewDiscoveryClientForConfigOrDie(config).ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	served := map[string][]string{} // by resource.group
	for _, list := range lists {
		group, version, found := strings.Cut(list.GroupVersion, "/")
		if !found {
			group, version = "", group
		}
		for _, r := range list.APIResources {
			served[r.Name+"."+group] = append(served[r.Name+"."+group], version)
		}
	}
	type rule struct {
		admissionv1.Rule
		from, text string
	}
	var rules []rule
	read := func(document []byte) {
		var o struct {
			Metadata struct{ Name string }
			Spec     struct{ MatchConstraints admissionv1.MatchResources }
			Webhooks []struct {
				Rules []admissionv1.RuleWithOperations
			}
		}
		if err := yaml.Unmarshal(document, &o); err != nil {
			t.Fatal(err)
		}
		for _, r := range o.Spec.MatchConstraints.ResourceRules {
			rules = append(rules, rule{r.Rule, o.Metadata.Name, string(document)})
		}
		for _, w := range o.Webhooks {
			for _, r := range w.Rules {
				rules = append(rules, rule{r.Rule, o.Metadata.Name, string(document)})
			}
		}
	}
	for _, resource := range []string{"validatingwebhookconfigurations", "mutatingwebhookconfigurations",
		"validatingadmissionpolicies", "mutatingadmissionpolicies"} {
		list := &unstructured.Unstructured{}
		if err := list.UnmarshalJSON([]byte(harness.Kubectl(t, e.Cluster, cluster.Admin, "", "get", resource, "-o", "json"))); err != nil {
			t.Fatal(err)
		}
		if err := list.EachListItem(func(o runtime.Object) error {
			document, err := o.(*unstructured.Unstructured).MarshalJSON()
			read(document)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, document := range documents {
		read([]byte(document))
	}
	several := 0
	for _, r := range rules {
		for _, resource := range r.Resources {
			group := r.APIGroups[0]
			versions := served[resource+"."+group]
			switch {
			case len(versions) == 0:
			case r.APIVersions[0] == "*" && (len(versions) > 1 || !strings.Contains(group, "operator")):
				t.Errorf("%s reads every version of %s.%s: %v", r.from, resource, group, versions)
			case r.APIVersions[0] != "*" && !slices.ContainsFunc(r.APIVersions, func(v string) bool { return slices.Contains(versions, v) }):
				t.Errorf("%s reads %v of %s.%s, served are %v", r.from, r.APIVersions, resource, group, versions)
			case len(r.APIVersions) > 1 && !strings.Contains(r.text, metakey.Conversion):
				t.Errorf("%s reads %v of %s.%s without what conversion carries", r.from, r.APIVersions, resource, group)
			}
			if len(versions) > 1 {
				several++
			}
		}
	}
	if len(rules) < 20 || several < 5 {
		t.Errorf("%d rules, %d of kinds with several versions", len(rules), several)
	}
}
