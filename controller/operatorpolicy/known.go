package operatorpolicy

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/rules"
)

// settleDelay is how long after a policy is deleted nothing is approved because no policy governs it: a Policy, Argo CD and
// kubectl replace --force create it again within seconds (threat O15).
const settleDelay = 10 * time.Second

// knownPolicies records the namespace in which each policy was last evaluated, to detect deleted policies. The zero value is ready for
// use.
type knownPolicies struct {
	mu sync.Mutex
	// since is the time of the first call, lost when a policy of a namespace was last missing.
	since time.Time
	lost  map[string]time.Time
	// in is the namespace of each policy, of are the policies of each namespace; a policy that has moved since is still in of.
	in map[types.NamespacedName]string
	of map[string][]types.NamespacedName
}

// replace sets the policies of a namespace and returns the previous ones that exist in no namespace any more.
func (k *knownPolicies) replace(namespace string, policies []*rules.OperatorPolicy, at time.Time) (gone []types.NamespacedName) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.in == nil {
		k.since, k.lost = at, map[string]time.Time{}
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
	if len(gone) > 0 {
		maps.DeleteFunc(k.lost, func(_ string, lost time.Time) bool { return at.Sub(lost) >= settleDelay })
		k.lost[namespace] = at
	}
	return gone
}

// settles returns the time until the policies of a namespace count as what is wanted there; 0 if none was deleted lately. A
// process that has just begun does not know.
func (k *knownPolicies) settles(namespace string, at time.Time) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	lost, known := k.lost[namespace]
	if !known {
		lost = k.since
	}
	return max(0, settleDelay-at.Sub(lost))
}
