package constraint

import (
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/blang/semver/v4"
	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/ext"

	"github.com/opgate/opgate/internal/text"
)

// newEnvironment returns the compiler for rules. For bundles it is a superset of OLM's (constraints.NewCelEnvironment
// in operator-framework/api): the same `properties` of the same type and the same semver_compare, with more variables
// and cel-go's extensions for strings, sets, lists and numbers. The versions of extensions are pinned, so that an
// upgrade of cel-go adds no function without a cost estimate; TestEveryFunctionIsEstimated enumerates them.
func (v *vocabulary) newEnvironment() (*cel.Env, error) {
	return cel.NewEnv(append(v.options(),
		cel.Function("semver_compare",
			cel.Overload("semver_compare", []*cel.Type{cel.AnyType, cel.AnyType}, cel.IntType,
				cel.BinaryBinding(semverCompare))),
		ext.Strings(ext.StringsVersion(5)),
		ext.Lists(ext.ListsVersion(3), ext.ListsMaxRangeSize(maxRange)),
		ext.Sets(),
		ext.Math(ext.MathVersion(3)),
		cel.ParserExpressionSizeLimit(maxRuleBytes),
		cel.ParserRecursionLimit(maxRuleDepth),
		cel.ExpressionNodeLimit(maxRuleNodes),
	)...)
}

// semverCompare compares two versions as OLM's does: it accepts "v1.2", "1.2" and the number 1.2, and returns an error
// for other values (constraints.semverCompare in operator-framework/api). Lists and maps are not printed in the error.
func semverCompare(a, b ref.Val) ref.Val {
	left, err := tolerantVersion(a)
	if err != nil {
		return types.NewErr("%s", err.Error())
	}
	right, err := tolerantVersion(b)
	if err != nil {
		return types.NewErr("%s", err.Error())
	}
	return types.Int(left.Compare(right))
}

func tolerantVersion(v ref.Val) (semver.Version, error) {
	switch v.(type) {
	case types.String, types.Double, types.Int, types.Uint:
	default:
		return semver.Version{}, fmt.Errorf("semver_compare: a value of type %s is not a version", v.Type().TypeName())
	}
	written := fmt.Sprint(v.Value())
	version, err := semver.ParseTolerant(written)
	if err != nil {
		return semver.Version{}, fmt.Errorf("semver_compare: %q is not a version", text.Truncate(written, valueShown))
	}
	return version, nil
}

// program is one compiled CEL expression. It is immutable except for its cached cost.
type program struct {
	source     string
	vocabulary *vocabulary
	// fast is the plain program; partial accepts unknown inputs; careful tracks costs while it runs.
	fast, partial, careful cel.Program
	estimator              *estimator
	// uses are the attributes that the expression refers to.
	uses Attributes
	// hintCost is the maximum cost for inputs of the hinted shape.
	hintCost uint64
	costs    boundedMap[shape, uint64]
	// last caches the last cost; most bundles have the same few shapes.
	last atomic.Pointer[shapeCost]
}

// compilations counts calls of compile, for a metric and for tests.
var compilations atomic.Uint64

// Compilations returns the number of CEL expressions that this process has compiled.
func Compilations() uint64 { return compilations.Load() }

// compile compiles an expression. The error is for its author: what is wrong and what would be accepted.
func (v *vocabulary) compile(source string, result *cel.Type) (p *program, err error) {
	compilations.Add(1)
	// The compiler is large and its input hostile: a panic refuses the rule instead of ending the process.
	defer func() {
		if r := recover(); r != nil {
			p, err = nil, fmt.Errorf("cannot be compiled: %v", r)
		}
	}()
	if len(source) > maxRuleBytes {
		return nil, fmt.Errorf("is %d bytes long, the limit is %d", len(source), maxRuleBytes)
	}
	env, err := v.environment()
	if err != nil {
		return nil, fmt.Errorf("cannot be compiled: %w", err)
	}
	ast, issues := env.Compile(source)
	if issues.Err() != nil {
		return nil, fmt.Errorf("does not compile: %s", v.issuesText(issues))
	}
	// OLM requires the exact type bool, so a dynamic result (p.value) is refused too.
	if !ast.OutputType().IsExactType(result) {
		return nil, fmt.Errorf("gives %s, it must give %s", ast.OutputType(), result)
	}
	est, err := newEstimator(ast, v)
	if err != nil {
		return nil, err
	}
	p = &program{source: source, vocabulary: v, estimator: est, uses: est.uses, hintCost: est.cost(hints)}
	if p.hintCost > RuleCostLimit {
		return nil, est.tooCostly(p.hintCost)
	}
	often := cel.InterruptCheckFrequency(interruptEvery)
	for _, plan := range []struct {
		into    *cel.Program
		options []cel.ProgramOption
	}{
		{&p.fast, []cel.ProgramOption{often, cel.EvalOptions(cel.OptOptimize)}},
		{&p.partial, []cel.ProgramOption{often, cel.EvalOptions(cel.OptOptimize, cel.OptPartialEval)}},
		{&p.careful, []cel.ProgramOption{often, cel.EvalOptions(cel.OptOptimize, cel.OptPartialEval),
			cel.CostTracking(runtimeCosts{instructions: est.instructions}), cel.CostLimit(countedCostLimit)}},
	} {
		if *plan.into, err = env.Program(ast, plan.options...); err != nil {
			return nil, fmt.Errorf("fails whatever the bundle is: %s", text.Truncate(err.Error(), ruleShown))
		}
	}
	return p, nil
}

// issuesText returns the compiler's first error with its position, and the available names if it is about an unknown or
// reserved name.
func (v *vocabulary) issuesText(issues *cel.Issues) string {
	first := issues.Errors()[0]
	text := text.Truncate(strings.ReplaceAll(first.Message, " (in container '')", ""), ruleShown)
	if line := first.Location.Line(); line > 0 {
		text += fmt.Sprintf(" at line %d, column %d", line, first.Location.Column()+1)
	}
	if strings.Contains(text, "undeclared reference") || strings.Contains(text, "reserved identifier") {
		names := v.names()
		text += "; the variables are " + strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
	}
	return text
}
