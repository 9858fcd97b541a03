package rules

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/state"
)

const (
	// MaxViolators bounds the violators that are listed of one Constraint.
	MaxViolators = 20
	// maxViolation bounds, in bytes, the message of one of them.
	maxViolation = 512
)

// Tally counts the installed operators that satisfy Constraints, and those that do not.
type Tally struct {
	// Installed is the number of operators; one that is installed in two namespaces counts twice.
	Installed int

	missed    map[*constraint.Constraint]*Count
	violators map[*constraint.Constraint][]Violator
}

// Count is the number of installed operators that satisfy one constraint of a Constraint, and of those that do not.
type Count struct {
	// Index and Field are those of the constraint: its number and its path.
	Index                         int
	Field                         string
	Satisfied, Violating, Unknown int
}

// Violator is an installed operator that does not satisfy one constraint of a Constraint.
type Violator struct {
	Namespace, CSV string
	// Index is that of the constraint.
	Index int
	// Message is that of the constraint, else what must be satisfied, in at most maxViolation bytes.
	Message string
}

// compare sorts by namespace, then name, then constraint.
func (v Violator) compare(other Violator) int {
	return cmp.Or(cmp.Compare(v.Namespace, other.Namespace), cmp.Compare(v.CSV, other.CSV),
		cmp.Compare(v.Index, other.Index))
}

// NewTally counts everything that is installed in namespaces at a time, in one pass for all Constraints. What an
// exception sets aside counts as satisfied.
func NewTally(namespaces iter.Seq[*state.Namespace], now time.Time) *Tally {
	t := &Tally{missed: map[*constraint.Constraint]*Count{}, violators: map[*constraint.Constraint][]Violator{}}
	for ns := range namespaces {
		for i := range ns.Installed() {
			t.Installed++
			// A budget for each: counting is not part of a request with a deadline.
			for _, f := range ns.Constraints().Judge(ns.Installed()[i].ForConstraints(ns), ns.ForConstraints(),
				constraint.NewBudget(nil)) {
				csv := ns.Installed()[i].CSV
				if f.Constraint == nil || !f.Definition.Exceptions.ForName(bundle.RuleConstraint, csv, ns.Name(), now) {
					t.add(ns.Name(), csv, &f)
				}
			}
		}
	}
	return t
}

func (t *Tally) add(namespace, csv string, f *constraint.Finding) {
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
		t.list(Violator{Namespace: namespace, CSV: csv, Index: f.Constraint.Index, Message: text.Truncate(state.MustSatisfy(f), maxViolation)},
			f.Constraint)
	} else {
		count.Unknown++
	}
}

// list adds a violator to the first ones of a constraint, in their order: namespaces are counted in no particular one.
func (t *Tally) list(v Violator, of *constraint.Constraint) {
	listed := t.violators[of]
	if at, _ := slices.BinarySearchFunc(listed, v, Violator.compare); at < MaxViolators {
		listed = slices.Insert(listed, at, v)
		t.violators[of] = listed[:min(len(listed), MaxViolators)]
	}
}

// Violators returns the first violators of a Constraint, at most MaxViolators, by namespace, name and constraint.
func (t *Tally) Violators(d *constraint.Definition) []Violator {
	var all []Violator
	for _, c := range d.Constraints {
		all = append(all, t.violators[c]...)
	}
	slices.SortFunc(all, Violator.compare)
	return all[:min(len(all), MaxViolators)]
}

// Of returns the counts of one Constraint, one for each of its constraints.
func (t *Tally) Of(d *constraint.Definition) []Count {
	counts := make([]Count, len(d.Constraints))
	for i, c := range d.Constraints {
		if missed := t.missed[c]; missed != nil {
			counts[i] = *missed
		}
		counts[i].Index, counts[i].Field = c.Index, c.Path
		counts[i].Satisfied = t.Installed - counts[i].Violating - counts[i].Unknown
	}
	return counts
}
