package constraint

import (
	"errors"
	"fmt"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"

	"github.com/opgate/opgate/internal/text"
)

// shapesRemembered bounds the shapes for which a program caches its cost.
const shapesRemembered = 256

// leastCharge is the minimum charge of an evaluation: constants cost nothing in cel-go's units, but calling does.
const leastCharge = 5

// The reasons for which a rule could not be judged.
const (
	whyInterrupted  = "judging was interrupted; try again"
	whyRequestLimit = "the rules of this request together cost more than the limit of %d units; try again"
	whyRuleLimit    = "it costs more than the limit of %d units for this bundle (%s)"
)

// result is the result of an evaluation: a value, or the attributes that it depends on, or an error.
type result struct {
	value   ref.Val
	unknown Attributes
	why     string
	// limited is set if the cause is a limit, not an error of the rule.
	limited bool
	// exceeded is set if the evaluation hit a limit at run time.
	exceeded bool
	// transient is set if the result depends on the budget, so that another request may get a different one.
	transient bool
}

// costFor returns the maximum cost of the program for inputs of a shape.
func (p *program) costFor(s shape) uint64 {
	last := p.last.Load()
	if last != nil && last.shape == s {
		return last.cost
	}
	cost, ok := p.costs.get(s)
	if !ok {
		cost = p.estimator.cost(s)
		p.costs.put(s, cost, 1, shapesRemembered)
	}
	p.last.Store(&shapeCost{shape: s, cost: cost})
	return cost
}

// shapeCost is the maximum cost of a program for inputs of a shape.
type shapeCost struct {
	shape shape
	cost  uint64
}

// eval runs the program. If the estimate for inputs of this size is within the limit, it charges the estimate and runs
// the plain program: tracking costs takes three times as long. Otherwise, or if the budget is too small for the
// estimate, it runs the careful program and charges the actual cost, unless a single call could exceed the limit, since
// costs are tracked after calls.
func (p *program) eval(a *activation, budget *Budget) result {
	if budget.interrupted() {
		return result{why: whyInterrupted, limited: true, transient: true}
	}
	var vars interpreter.Activation = a
	program, proven := p.fast, false
	if p.uses&a.unknown != 0 {
		vars, program = a.partial(), p.partial
	}
	shape := a.shapeFor(p.uses)
	cost := max(p.costFor(shape), leastCharge)
	if proven = cost <= RuleCostLimit; !proven || !budget.take(cost) {
		switch {
		case !proven && p.estimator.heavy:
			return result{why: fmt.Sprintf(whyRuleLimit, uint64(RuleCostLimit), a.size(shape)), limited: true}
		case p.estimator.heavy, !budget.take(countedFactor):
			return result{why: fmt.Sprintf(whyRequestLimit, uint64(RequestCostLimit)), limited: true, transient: true}
		}
		program = p.careful
	}
	var value ref.Val
	var details *cel.EvalDetails
	var err error
	if proven && cost < interruptedFrom && program != p.careful {
		value, details, err = program.Eval(vars)
	} else {
		value, details, err = program.ContextEval(budget.interrupt, vars)
	}
	if actual := details.ActualCost(); actual != nil {
		// What exceeds the limit was one call, not a loop.
		loops := min(*actual, countedCostLimit)
		budget.spent.Add(loops*countedFactor + *actual - loops)
	}
	r := p.read(value, err, a, budget)
	if r.exceeded && proven {
		// The estimate was within the limit: with enough budget the request would have had a result.
		r.why, r.transient = fmt.Sprintf(whyRequestLimit, uint64(RequestCostLimit)), true
	}
	return r
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
			return result{why: fmt.Sprintf(whyRuleLimit, uint64(RuleCostLimit), a.size(a.shapeFor(p.uses))),
				limited: true, exceeded: true}
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

// size describes the size of the inputs in a message.
func (a *activation) size(s shape) string {
	return strings.Join([]string{
		fmt.Sprintf("%d properties", len(a.bundle.Properties)),
		fmt.Sprintf("texts of up to %d characters", 1<<s.text),
		fmt.Sprintf("lists of up to %d elements", 1<<max(s.elements, s.rules)),
	}, ", ")
}
