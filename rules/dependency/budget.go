package dependency

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// The limits of what Opgate watches for Policies, so that their authors can exhaust neither its memory nor the share of
// others. A watch is on one kind in one namespace, for any number of Policies and objects, and takes about 60 KiB.
// Policies and PolicySets need no watch. Three Policies at their limit fit into a namespace.
const (
	maxPolicyWatches    = 12
	maxNamespaceWatches = 40
	maxWatches          = 400
)

// Waiter is a Policy and what has to be watched for it.
type Waiter struct {
	types.NamespacedName
	// Created is the creation time: older Policies take precedence.
	Created time.Time
	// Watches are sorted references without names: to all objects of a kind in a namespace.
	Watches []Ref
}

// NewWaiter returns a Policy with the watches for the objects that it depends on. Policies and PolicySets are always read.
func NewWaiter(policy types.NamespacedName, created time.Time, objects []Ref) Waiter {
	w := Waiter{NamespacedName: policy, Created: created}
	for _, object := range objects {
		if !object.IsPolicy() && !object.IsSet() {
			w.Watches = append(w.Watches, ShareOf(policy, object).Watch)
		}
	}
	slices.SortFunc(w.Watches, Ref.Compare)
	w.Watches = slices.Compact(w.Watches)
	return w
}

// Share is a watch for a Policy.
type Share struct {
	Policy types.NamespacedName
	Watch  Ref
}

// ShareOf returns the watch for an object that a Policy depends on.
func ShareOf(policy types.NamespacedName, object Ref) Share {
	object.Name = ""
	return Share{policy, object}
}

// Beyond returns what exceeds the limits. Older Policies come first, so that a newer one never takes a watch from an
// older one. The waiters are sorted.
func Beyond(waiters []Waiter) map[Share]bool {
	slices.SortFunc(waiters, func(a, b Waiter) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Namespace, b.Namespace),
			strings.Compare(a.Name, b.Name))
	})
	all, namespaces, beyond := map[Ref]bool{}, map[string]map[Ref]bool{}, map[Share]bool{}
	for _, w := range waiters {
		in, own := namespaces[w.Namespace], 0
		if in == nil {
			in = map[Ref]bool{}
			namespaces[w.Namespace] = in
		}
		for _, watch := range w.Watches {
			if own < maxPolicyWatches && (in[watch] || len(in) < maxNamespaceWatches) &&
				(all[watch] || len(all) < maxWatches) {
				all[watch], in[watch] = true, true
				own++
				continue
			}
			beyond[Share{w.NamespacedName, watch}] = true
		}
	}
	return beyond
}

// TooManyText returns the message for a dependency beyond the limits.
func TooManyText() string {
	return fmt.Sprintf("too many objects are waited for: the Policies of a namespace may wait for objects of %d kinds and namespaces, of which %d for one Policy, "+
		"and all Policies together of %d kinds and namespaces; older Policies come first", maxNamespaceWatches,
		maxPolicyWatches, maxWatches)
}
