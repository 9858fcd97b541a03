package operatorpolicy

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/rules"
)

// knownPolicies records the namespace in which each policy was last evaluated, to detect deleted policies. The zero value is ready for
// use.
type knownPolicies struct {
	mu sync.Mutex
	// in is the namespace of each policy, of are the policies of each namespace; a policy that has moved since is still in of.
	in map[types.NamespacedName]string
	of map[string][]types.NamespacedName
}

// replace sets the policies of a namespace and returns the previous ones that exist in no namespace any more.
func (k *knownPolicies) replace(namespace string, policies []*rules.OperatorPolicy) (gone []types.NamespacedName) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.in == nil {
		k.in, k.of = map[types.NamespacedName]string{}, map[string][]types.NamespacedName{}
	}
	var now []types.NamespacedName
	for _, p := range policies {
		name := types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
		now = append(now, name)
		k.in[name] = namespace
	}
	for _, name := range k.of[namespace] {
		if k.in[name] == namespace && !slices.Contains(now, name) {
			delete(k.in, name)
			gone = append(gone, name)
		}
	}
	if k.of[namespace] = now; now == nil {
		delete(k.of, namespace)
	}
	return gone
}
