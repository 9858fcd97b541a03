package policy

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/rules/dependency"
)

func TestStateIsOfOnePolicy(t *testing.T) {
	var m state
	key := types.NamespacedName{Namespace: "shop", Name: "app"}
	m.policy(key, "one").template(dependency.Ref{Name: "x"}).contested = true
	if !m.policy(key, "one").template(dependency.Ref{Name: "x"}).contested {
		t.Error("forgotten")
	}
	if m.policy(key, "two").template(dependency.Ref{Name: "x"}).contested {
		t.Error("a Policy that was deleted and made again remembers the former one")
	}
	m.Delete(key)
	if _, known := m.Load(key); known {
		t.Error("not forgotten")
	}
}

func TestStateForgetsObjectsThatAreGone(t *testing.T) {
	p := &policyState{templates: map[dependency.Ref]*templateState{}}
	for _, name := range []string{"template", "pruned", "gone"} {
		p.template(dependency.Ref{Name: name})
	}
	p.keep(map[dependency.Ref]bool{{Name: "template"}: true},
		map[dependency.Ref]*unstructured.Unstructured{{Name: "pruned"}: {}})
	if len(p.templates) != 2 || p.templates[dependency.Ref{Name: "gone"}] != nil {
		t.Errorf("remembers %v", p.templates)
	}
}
