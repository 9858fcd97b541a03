// Package fair shares tables with limited room among those who fill them, so that no author of policies, and no tenant,
// can push out what others need.
package fair

import (
	"cmp"
	"slices"
	"strings"
)

// Origin is the policy, the Constraint or the object of a tenant that something is in a table for.
type Origin struct {
	// Namespace is the one that its author may write in, by which room is shared; empty for Constraints, which count as
	// one namespace.
	Namespace, Name string
	// Created is in Unix seconds; 0 if not known, as in files, and for Constraints.
	Created int64
	// UID is that of an OperatorPolicy; empty for anything else.
	UID string
}

// String returns NAMESPACE/NAME, and NAME of a Constraint.
func (o Origin) String() string {
	return strings.TrimPrefix(o.Namespace+"/"+o.Name, "/")
}

func (o Origin) compare(other Origin) int {
	return cmp.Or(cmp.Compare(o.Created, other.Created), cmp.Compare(o.Namespace, other.Namespace),
		cmp.Compare(o.Name, other.Name))
}

// Claim is a row of a table, for an origin. Several origins may claim one row, which has its room once.
type Claim[R comparable] struct {
	Origin
	Row R
	// Weight is the part of the limit that the row takes.
	Weight int
}

// Within returns a claim for each row that a limit has room for, and what the others are for, sorted. The limit is
// shared by the namespaces of the origins: a namespace that needs no more than an equal share keeps everything, and one
// that needs more loses its newest first. Claims of equal origins count in their order.
func Within[R comparable](claims []Claim[R], limit int) (kept []Claim[R], left []Origin) {
	type need struct {
		Claim[R]
		// sum is what the namespace needs for this row and all before it.
		sum int
	}
	type own struct {
		namespace string
		row       R
	}
	sums, counted, needs := map[string]int{}, map[own]bool{}, make([]need, 0, len(claims))
	for _, c := range slices.SortedStableFunc(slices.Values(claims),
		func(a, b Claim[R]) int { return a.compare(b.Origin) }) {
		if of := (own{c.Namespace, c.Row}); !counted[of] {
			counted[of] = true
			sums[c.Namespace] += c.Weight
			needs = append(needs, need{c, sums[c.Namespace]})
		}
	}
	slices.SortStableFunc(needs, func(a, b need) int { return cmp.Compare(a.sum, b.sum) })
	has := make(map[R]bool, len(needs))
	for _, n := range needs {
		switch {
		case has[n.Row]:
		case n.Weight > limit:
			left = append(left, n.Origin)
		default:
			limit -= n.Weight
			has[n.Row], kept = true, append(kept, n.Claim)
		}
	}
	slices.SortFunc(left, func(a, b Origin) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), a.compare(b))
	})
	return kept, slices.Compact(left)
}

// Rows returns the rows of claims.
func Rows[R comparable](claims []Claim[R]) []R {
	var rows []R
	for _, c := range claims {
		rows = append(rows, c.Row)
	}
	return rows
}
