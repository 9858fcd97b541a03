package backstop

import (
	"cmp"
	"slices"

	"github.com/opgate/opgate/rules/operatorpolicy"
)

// origin is the policy or the Constraint that something in a table is of.
type origin struct {
	// namespace is empty for a Constraint.
	namespace, name string
	// created is in Unix seconds; 0 if not known, as in files, and for Constraints.
	created int64
}

func originOf(p *operatorpolicy.Policy) origin {
	o := origin{namespace: p.Namespace, name: p.Name}
	if p.Object != nil && !p.Object.CreationTimestamp.IsZero() {
		o.created = p.Object.CreationTimestamp.Unix()
	}
	return o
}

func (o origin) from() origin { return o }

// key is NAMESPACE/NAME of a policy, and NAME of a Constraint.
func (o origin) key() string {
	if o.namespace == "" {
		return word(o.name)
	}
	return word(o.namespace) + "/" + word(o.name)
}

// within returns those of some parts of policies that a limit has room for, and what the others are of. The API server
// must not be kept from storing and evaluating what other policies say, so a limit is shared by the
// namespaces that the policies are in, and by all Constraints as by one: a namespace that needs no more than an equal
// share keeps everything, and one that needs more loses its newest first.
func within[P interface{ from() origin }](parts []P, limit int, weight func(P) int) (kept []P, left []string) {
	type weighed struct {
		part          P
		weight, needs int
	}
	all, used := make([]weighed, len(parts)), map[string]int{}
	for i, p := range parts {
		all[i] = weighed{part: p, weight: weight(p)}
	}
	slices.SortStableFunc(all, func(a, b weighed) int {
		return cmp.Or(cmp.Compare(a.part.from().created, b.part.from().created),
			cmp.Compare(a.part.from().name, b.part.from().name))
	})
	for i, w := range all {
		used[w.part.from().namespace] += w.weight
		all[i].needs = used[w.part.from().namespace]
	}
	slices.SortStableFunc(all, func(a, b weighed) int {
		return cmp.Or(cmp.Compare(a.needs, b.needs), cmp.Compare(a.part.from().namespace, b.part.from().namespace))
	})
	for _, w := range all {
		if w.weight > limit {
			left = append(left, w.part.from().key())
			continue
		}
		limit -= w.weight
		kept = append(kept, w.part)
	}
	return kept, left
}
