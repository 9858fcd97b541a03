package admission

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/dependency"
)

// TestConstraintsCountEverywhere also in a namespace that nothing is known of yet.
func TestConstraintsCountEverywhere(t *testing.T) {
	snapshot := &Snapshot{constraints: constraint.NewSet([]*constraint.Definition{rules.NewDefinition(certifiedOnly(1, ""), nil)}, constraint.Cluster{})}
	if snapshot.Namespace("nowhere").Constraints().Empty() {
		t.Error("no Constraint counts there")
	}
}

// TestSetConstraints makes Constraints ready anew when something counts for judging, and only then: what has been judged is
// remembered with them.
func TestSetConstraints(t *testing.T) {
	cluster := constraint.Cluster{Version: "1.36.3"}
	s := &Snapshot{}
	for _, step := range []struct {
		name    string
		stored  []*constraintv1.Constraint
		cluster constraint.Cluster
		want    bool
	}{
		{"none, at first", nil, cluster, true},
		{"the first", []*constraintv1.Constraint{certifiedOnly(1, "")}, cluster, true},
		{"its status", []*constraintv1.Constraint{certifiedOnly(1, "a")}, cluster, false},
		{"suspended, which makes no generation", []*constraintv1.Constraint{suspended(certifiedOnly(1, "b"))}, cluster, true},
		{"not suspended any more", []*constraintv1.Constraint{certifiedOnly(1, "c")}, cluster, true},
		{"its spec", []*constraintv1.Constraint{certifiedOnly(2, "a")}, cluster, true},
		{"another Kubernetes", []*constraintv1.Constraint{certifiedOnly(2, "a")}, constraint.Cluster{Version: "1.37.0"}, true},
		{"another OpenShift", []*constraintv1.Constraint{certifiedOnly(2, "a")}, constraint.Cluster{Version: "1.37.0", OpenShift: "4.19.3"}, true},
		{"gone", nil, constraint.Cluster{Version: "1.37.0", OpenShift: "4.19.3"}, true},
	} {
		store := cache.NewStore(cache.MetaNamespaceKeyFunc)
		for _, c := range step.stored {
			it := &item{ObjectMeta: metav1.ObjectMeta{Name: c.Name}, read: read{constraint: &storedConstraint{c, rules.NewDefinition(c, nil)}}}
			if err := store.Add(it); err != nil {
				t.Fatal(err)
			}
		}
		if got := s.setConstraints(store, step.cluster); got != step.want {
			t.Errorf("%s: made ready anew is %v, want %v", step.name, got, step.want)
		}
		if len(s.objects) != len(step.stored) || len(s.constraints.Definitions()) != len(step.stored) {
			t.Errorf("%s: %d objects and %d definitions, want %d", step.name, len(s.objects), len(s.constraints.Definitions()), len(step.stored))
		}
	}
}

func certifiedOnly(generation int64, resourceVersion string) *constraintv1.Constraint {
	c := &constraintv1.Constraint{ObjectMeta: metav1.ObjectMeta{Name: "certified", UID: "1", Generation: generation, ResourceVersion: resourceVersion}}
	c.Spec.Constraints = `[{"type":"olm.constraint","value":{"rule":"properties.exists(p, p.type == 'certified')"}}]`
	return c
}

func suspended(c *constraintv1.Constraint) *constraintv1.Constraint {
	c.Annotations = map[string]string{dependency.AnnotationPending: "policies/app"}
	return c
}

// TestIdentity: who Opgate is decides who may write virtual operators; while that is not known, nobody may.
func TestIdentity(t *testing.T) {
	const opgate = "system:serviceaccount:opgate-system:opgate"
	csv := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
		"metadata": map[string]any{"name": "opgate-properties-hardware", "namespace": "shop", "labels": map[string]any{rules.VirtualOperatorLabel: "hardware"}}}}
	for name, c := range map[string]struct {
		user, known string
		want        bool
	}{
		"Opgate":                           {opgate, opgate, true},
		"an admin":                         {"admin", opgate, false},
		"Opgate, before it knows its name": {opgate, "", false},
		"nobody, before that":              {"", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			gate := newGate(t, storeOf(t), overrideBy{})
			gate.identity = func() string { return c.known }
			if got := send(t, gate, c.user, false, nil, csv); got.allowed != c.want {
				t.Errorf("allowed is %v, want %v: %s", got.allowed, c.want, got.message)
			}
		})
	}
}
