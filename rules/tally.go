package rules

import (
	"iter"

	"github.com/opgate/opgate/rules/constraint"
)

// Tally is how many installed operators satisfy Constraints, and how many do not.
type Tally struct {
	// Installed is how many operators there are; one that is installed in two namespaces counts twice.
	Installed int

	missed map[*constraint.Constraint]*Count
}

// Count is how many installed operators satisfy one constraint of a Constraint, and how many do not.
type Count struct {
	// Index is that of the constraint in spec.constraints.
	Index                         int
	Satisfied, Violating, Unknown int
}

// NewTally counts over all that is installed in namespaces. It goes through them once, for all Constraints.
func NewTally(namespaces iter.Seq[*Namespace]) *Tally {
	t := &Tally{missed: map[*constraint.Constraint]*Count{}}
	for ns := range namespaces {
		for i := range ns.Installed() {
			t.Installed++
			// A budget for each: what is counted here is not a request that somebody waits for.
			for _, f := range ns.Constraints().Judge(ns.installed[i].bundle(ns), ns.Facts(), constraint.NewBudget(nil)) {
				t.add(&f)
			}
		}
	}
	return t
}

func (t *Tally) add(f *constraint.Finding) {
	if f.Constraint == nil {
		return // a Constraint that cannot be read; nothing in it is counted
	}
	count := t.missed[f.Constraint]
	if count == nil {
		count = &Count{}
		t.missed[f.Constraint] = count
	}
	if f.Outcome == constraint.Violated {
		count.Violating++
	} else {
		count.Unknown++
	}
}

// Of returns the counts of one Constraint, one for each of its constraints.
func (t *Tally) Of(d *constraint.Definition) []Count {
	counts := make([]Count, len(d.Constraints))
	for i, c := range d.Constraints {
		if missed := t.missed[c]; missed != nil {
			counts[i] = *missed
		}
		counts[i].Index = c.Index
		counts[i].Satisfied = t.Installed - counts[i].Violating - counts[i].Unknown
	}
	return counts
}
