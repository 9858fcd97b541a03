package watches

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/rules/dependency"
)

// The limits of what is watched for Policies, so that their authors can exhaust neither the memory of Opgate nor the
// share of others. A watch is on one kind in one namespace, for any number of Policies and objects, and takes about
// 60 KiB. Three Policies at their limit fit into a namespace.
const (
	maxPolicyWatches    = 12
	maxNamespaceWatches = 40
	maxWatches          = 400
)

// share is a watch for a Policy: a reference without a name is to all objects of a kind in a namespace.
type share struct {
	policy types.NamespacedName
	watch  dependency.Ref
}

// shareOf returns the watch for an object that a Policy depends on.
func shareOf(policy types.NamespacedName, object dependency.Ref) share {
	object.Name = ""
	return share{policy, object}
}

// ration applies the limits, and returns the owners whose watches change. Older Policies come first, so that a newer
// one never takes a watch from an older one.
func (w *Watches) ration() owners {
	byAge := slices.SortedFunc(maps.Values(w.owners), func(a, b *owner) int {
		return cmp.Or(a.created.Compare(b.created), strings.Compare(a.name.String(), b.name.String()))
	})
	all, namespaces, beyond := map[dependency.Ref]bool{}, map[string]map[dependency.Ref]bool{}, map[share]bool{}
	for _, o := range byAge {
		in, own := namespaces[o.name.Namespace], 0
		if in == nil {
			in = map[dependency.Ref]bool{}
			namespaces[o.name.Namespace] = in
		}
		for _, watch := range o.watches {
			if own < maxPolicyWatches && (in[watch] || len(in) < maxNamespaceWatches) &&
				(all[watch] || len(all) < maxWatches) {
				all[watch], in[watch] = true, true
				own++
				continue
			}
			beyond[share{o.name, watch}] = true
		}
	}
	changed := owners{}
	for _, shares := range [][2]map[share]bool{{w.beyond, beyond}, {beyond, w.beyond}} {
		for one := range shares[0] {
			if !shares[1][one] {
				changed[one.policy] = struct{}{}
			}
		}
	}
	w.beyond = beyond
	return changed
}

// tooManyText is the message for a dependency beyond the limits.
var tooManyText = fmt.Sprintf("too many objects are waited for: the Policies of a namespace may wait for objects of %d kinds and namespaces, of which %d for one Policy, "+
	"and all Policies together of %d kinds and namespaces; older Policies come first", maxNamespaceWatches,
	maxPolicyWatches, maxWatches)
