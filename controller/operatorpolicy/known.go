package operatorpolicy

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/rules"
)

// knownPolicies records the namespace in which each policy was last evaluated, to detect deleted policies.
type knownPolicies struct {
	mu sync.Mutex
	in map[types.NamespacedName]string
}

// replace sets the policies of a namespace and returns the previous ones that exist in no namespace any more.
func (k *knownPolicies) replace(namespace string, policies []*rules.OperatorPolicy) (gone []types.NamespacedName) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.in == nil {
		k.in = map[types.NamespacedName]string{}
	}
	now := make(map[types.NamespacedName]bool, len(policies))
	for _, p := range policies {
		name := types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
		now[name] = true
		k.in[name] = namespace
	}
	for name, where := range k.in {
		if where == namespace && !now[name] {
			delete(k.in, name)
			gone = append(gone, name)
		}
	}
	return gone
}
