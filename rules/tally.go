package rules

import (
	"iter"

	"github.com/opgate/opgate/rules/constraint"
)

// Tally counts the installed operators that satisfy Constraints, and those that do not.
type Tally struct {
	// Installed is the number of operators; one that is installed in two namespaces counts twice.
	Installed int

	missed map[*constraint.Constraint]*Count
}

// Count is the number of installed operators that satisfy one constraint of a Constraint, and of those that do not.
type Count struct {
	// Index is that of the constraint in spec.constraints.
	Index                         int
	Satisfied, Violating, Unknown int
}

// NewTally counts everything that is installed in namespaces, in one pass for all Constraints.
func NewTally(namespaces iter.Seq[*Namespace]) *Tally {
	t := &Tally{missed: map[*constraint.Constraint]*Count{}}
	for ns := range namespaces {
		for i := range ns.Installed() {
			t.Installed++
			// A budget for each: counting is not part of a request with a deadline.
			for _, f := range ns.Constraints().Judge(ns.installed[i].bundle(ns), ns.ForConstraints(), constraint.NewBudget(nil)) {
				t.add(&f)
			}
		}
	}
	return t
}

func (t *Tally) add(f *constraint.Finding) {
	if f.Constraint == nil {
		return // an unreadable Constraint: nothing in it is counted
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
