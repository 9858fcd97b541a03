package rules

import (
	"slices"
	"time"

	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/rules/evidence"
	"github.com/opgate/opgate/rules/state"
)

// NextChange returns when the time alone changes what holds plans here: an approval window opens, a freeze ends or a
// version is old enough for which a plan waits, or an override or a consent of a plan ends; zero if none of that will
// be.
func NextChange(n *state.Namespace, now time.Time) time.Time {
	next := nextEnd(n, now)
	if !slices.ContainsFunc(n.Plans(), n.Waits) {
		return next
	}
	if at := nextAge(n, now); next.IsZero() || !at.IsZero() && at.Before(next) {
		next = at
	}
	for _, p := range n.Enforcing() {
		if p.MustNotHave || !p.Calendar.Restricts() || p.Unreadable() != "" {
			continue
		}
		if when := p.Calendar.At(now); !when.Open {
			if at := when.Changes(); !at.IsZero() && (next.IsZero() || at.Before(next)) {
				next = at
			}
		}
	}
	return next
}

// nextAge returns when the first version of a plan that waits is old enough; zero if none is too young.
func nextAge(n *state.Namespace, now time.Time) time.Time {
	var next time.Time
	aged := func(p *state.OperatorPolicy) bool { return p.Age.Holds() && !p.MustNotHave }
	if !slices.ContainsFunc(n.Enforcing(), aged) {
		return next
	}
	for _, plan := range n.Plans() {
		if !n.Waits(plan) {
			continue
		}
		bundles := carrier.OfPlan(plan, n)
		for i := range bundles {
			seen, unknown := bundles[i].FirstSeen(n)
			for _, p := range n.Governing(bundles[i].Package) {
				ready := seen.Add(p.Age.Least)
				if unknown == "" && p.Age.Holds() && now.Before(ready) && (next.IsZero() || ready.Before(next)) {
					next = ready
				}
			}
		}
	}
	return next
}

// nextEnd returns when the first override or consent of a plan ends that is in force; zero if none does.
func nextEnd(n *state.Namespace, now time.Time) time.Time {
	var ends []time.Time
	for _, plan := range n.Plans() {
		for _, e := range evidence.Of(plan) {
			if end, never, known := e.At(); known && !never && now.Before(end) {
				ends = append(ends, end)
			}
		}
	}
	if len(ends) == 0 {
		return time.Time{}
	}
	return slices.MinFunc(ends, time.Time.Compare)
}
