package constraint

import (
	"errors"
	"fmt"
	"slices"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
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

// activation holds the variables for one bundle, namespace and cluster. It is created once per bundle, not per rule.
type activation struct {
	vocabulary *vocabulary
	// bundle is empty for a write.
	bundle *Bundle
	around *surroundings
	// values are those of the variables, by their position in the vocabulary; nil for one that no rule has read yet.
	values   []ref.Val
	unknown  Attributes
	patterns []*interpreter.AttributePattern
}

func newActivation(b *Bundle, around *surroundings) *activation {
	missing := unknownOf(around.facts, b)
	a := &activation{vocabulary: vocabularies[OnBundle], bundle: b, around: around,
		values: make([]ref.Val, len(variables)), unknown: missing | around.unknownAttributes,
		patterns: slices.Clip(around.unknown)}
	for i := range variables {
		v := &variables[i]
		if v.read != nil {
			a.values[i] = v.read(b, around.facts)
		}
		if missing&v.attribute != 0 {
			a.patterns = append(a.patterns, interpreter.NewAttributePattern(v.name))
		}
	}
	return a
}

// ResolveName returns a variable's value.
func (a *activation) ResolveName(name string) (any, bool) {
	i, ok := a.vocabulary.index[name]
	if !ok {
		return nil, false
	}
	if a.values[i] == nil {
		a.values[i] = a.vocabulary.variables[i].of(a)
	}
	return a.values[i], true
}

// changed returns the lists of what the bundle changes.
func (a *activation) changed() ref.Val {
	lists := make(map[string]any, len(ChangeLists))
	for _, name := range ChangeLists {
		lists[name] = list(a.bundle.change().Lists[name])
	}
	return mapOf(lists)
}

// images returns the images that the ClusterServiceVersion and the config of the Subscription name.
func (a *activation) images() ref.Val {
	parts := a.bundle.Config.Parts()
	named, err := a.contents().Images()
	return images(slices.Concat(named, parts.Images()), err)
}

// config returns what the config of the Subscription sets.
func (a *activation) config() ref.Val {
	parts := a.bundle.Config.Parts()
	return mapOf(map[string]any{"fields": list(parts.Fields), "env": list(parts.Env), "envFrom": list(parts.EnvFrom)})
}

func (a *activation) contents() *olm.Demands {
	if a.bundle.Manifest == nil {
		return &olm.Demands{Spec: &olm.CSVSpec{}}
	}
	return a.bundle.Manifest
}

// Parent returns nil: there is one level of names.
func (a *activation) Parent() interpreter.Activation { return nil }
