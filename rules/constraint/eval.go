package constraint

import (
	"errors"
	"fmt"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"

	"github.com/opgate/opgate/internal/text"
)

// leastCharge is the minimum charge of an evaluation: constants cost nothing in cel-go's units, but calling does.
const leastCharge = 5

// The reasons for which a rule could not be judged.
const (
	whyInterrupted = "judging was interrupted; try again"
	whyBundleLimit = "the rules on this bundle together cost more than the limit of %d units"
	whyRuleLimit   = "it costs more than the limit of %d units for this bundle (%d properties)"
)

// result is the result of an evaluation: a value, or the attributes that it depends on, or an error.
type result struct {
	value   ref.Val
	unknown Attributes
	why     string
	// limited is set if the cause is a limit, not an error of the rule, and costly if it is that of the rule.
	limited, costly bool
	// transient is set if evaluation was interrupted, so that another request may get a different result.
	transient bool
}

// eval runs the program, and charges what it costs to the budget of the bundle.
func (p *program) eval(a *activation, budget *Budget) result {
	switch {
	case budget.interrupted():
		return result{why: whyInterrupted, limited: true, transient: true}
	case budget.Spent() >= BundleCostLimit:
		return result{why: fmt.Sprintf(whyBundleLimit, uint64(BundleCostLimit)), limited: true}
	}
	var vars interpreter.Activation = a
	if p.uses&a.unknown != 0 {
		vars = a.partial()
	}
	value, details, err := p.program.ContextEval(budget.interrupt, vars)
	if cost := details.ActualCost(); cost != nil { // what is charged beyond the limit was not run
		budget.spent.Add(min(max(*cost, leastCharge), RuleCostLimit))
	}
	return p.read(value, err, a, budget)
}

// partial returns the activation with its unknown attributes.
func (a *activation) partial() interpreter.Activation {
	partial, err := interpreter.NewPartialActivation(a, a.patterns...)
	if err != nil { // only for inputs of a wrong type
		return a
	}
	return partial
}

// read converts the output of cel-go to a result.
func (p *program) read(value ref.Val, err error, a *activation, budget *Budget) result {
	if err != nil {
		var cancelled interpreter.EvalCancelledError
		switch {
		case errors.Is(err, interpreter.InterruptError{}), budget.interrupted():
			return result{why: whyInterrupted, limited: true, transient: true}
		case errors.As(err, &cancelled):
			return result{why: fmt.Sprintf(whyRuleLimit, uint64(RuleCostLimit), len(a.bundle.Properties)), limited: true,
				costly: true}
		}
		return result{why: text.Truncate(err.Error(), ruleShown)}
	}
	if u, ok := value.(*types.Unknown); ok {
		var r result
		for _, id := range u.IDs() {
			trails, _ := u.GetAttributeTrails(id)
			for _, trail := range trails {
				r.unknown |= p.vocabulary.attributes[trail.Variable()] & a.unknown
			}
		}
		r.why = a.bundle.notKnown(r.unknown)
		return r
	}
	return result{value: value}
}
