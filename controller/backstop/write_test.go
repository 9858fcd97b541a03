package backstop

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/controller/owned"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/backstop"
	"github.com/opgate/opgate/rules/operatorpolicy"
)

var owner = metav1.OwnerReference{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole", Name: OwnerName,
	UID: "role"}

// compiledObjects are what one policy compiles to, by kind and name.
func compiledObjects(t *testing.T, versions ...string) map[string]*unstructured.Unstructured {
	t.Helper()
	op := &policyv1beta2.OperatorPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "policies", Name: "etcd"}}
	op.Spec.RemediationAction = "enforce"
	op.Spec.ComplianceType = "musthave"
	op.Spec.Subscription.Name, op.Spec.Subscription.Namespace = "etcd", "shop"
	op.Spec.Versions = versions
	op.Spec.Deletion = policyv1beta2.DeletionDeny // else there is no object on deletions
	objects := backstop.Compile(backstop.Input{Policies: []*operatorpolicy.Policy{rules.NewOperatorPolicy(op)},
		Opgate: "opgate", Namespace: "opgate-system", OLM: []string{"olm"},
		Features: backstop.Features{ValidatingAdmissionPolicy: true, MutatingAdmissionPolicy: true, Semver: true},
		Labels:   owned.Labels})
	all := map[string]*unstructured.Unstructured{}
	for _, o := range objects.All {
		u := owned.Unstructured(o)
		all[u.GetKind()+"/"+u.GetName()] = u
	}
	if len(all) != len(kinds) {
		t.Fatalf("there are %d objects, want one of each of %d kinds", len(all), len(kinds))
	}
	return all
}

// TestMatches: every change of what an object says, of its owner and of its labels is noticed, and nothing else.
func TestMatches(t *testing.T) {
	for kind, object := range compiledObjects(t, "etcd.v0.9.2") {
		stored := func(change func(u *unstructured.Unstructured)) *unstructured.Unstructured {
			u := owned.Desired(nil, object, &owner)
			u.SetUID("uid")
			u.SetResourceVersion("7")
			change(u)
			return u
		}
		set := func(value any, path ...string) func(u *unstructured.Unstructured) {
			return func(u *unstructured.Unstructured) {
				if err := unstructured.SetNestedField(u.Object, value, path...); err != nil {
					t.Fatal(err)
				}
			}
		}
		for name, test := range map[string]struct {
			change func(u *unstructured.Unstructured)
			want   bool
		}{
			"as written":         {change: func(*unstructured.Unstructured) {}, want: true},
			"with a status":      {change: set("text", "status", "message"), want: true},
			"with an annotation": {change: set("text", "metadata", "annotations", "note"), want: true},
			"with another label": {change: set("text", "metadata", "labels", "note"), want: true},
			"without a label":    {change: func(u *unstructured.Unstructured) { u.SetLabels(nil) }},
			"without its owner":  {change: func(u *unstructured.Unstructured) { u.SetOwnerReferences(nil) }},
			"owned by an earlier one": {change: set(
				[]any{map[string]any{"apiVersion": owner.APIVersion, "kind": owner.Kind, "name": owner.Name,
					"uid": "old"}}, "metadata", "ownerReferences")},
			"with an exemption": {change: set([]any{map[string]any{"resources": []any{"*"}}}, "spec",
				"matchConstraints", "excludeResourceRules")},
			"with a narrower binding": {change: set(map[string]any{"a": "b"}, "spec", "matchResources",
				"namespaceSelector", "matchLabels")},
		} {
			if got := owned.Same(stored(test.change),
				owned.Desired(stored(test.change), object, &owner)); got != test.want {
				t.Errorf("%s %s: got %t", kind, name, got)
			}
		}
	}
}

// TestDesired: a restored object has what it has to say, and keeps the rest of its metadata.
func TestDesired(t *testing.T) {
	const validating = "ValidatingAdmissionPolicy/" + backstop.Name
	before, after := compiledObjects(t, "etcd.v0.9.2")[validating], compiledObjects(t, "etcd.v0.9.4")[validating]
	live := owned.Desired(nil, before, &owner)
	live.SetResourceVersion("7")
	live.SetLabels(map[string]string{"note": "text", "app.kubernetes.io/managed-by": "another"})
	live.SetOwnerReferences([]metav1.OwnerReference{{UID: "other"}})
	if owned.Same(live, owned.Desired(live, after, &owner)) {
		t.Error("the object for other versions matches")
	}
	next := owned.Desired(live, after, &owner)
	if !owned.Same(next, owned.Desired(next, after, &owner)) || next.GetResourceVersion() != "7" ||
		next.GetLabels()["note"] != "text" {
		t.Errorf("got labels %v, owners %v, version %s", next.GetLabels(), next.GetOwnerReferences(),
			next.GetResourceVersion())
	}
	if live.GetLabels()["app.kubernetes.io/managed-by"] != "another" {
		t.Error("the watched object was modified")
	}
}
