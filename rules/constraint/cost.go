package constraint

import (
	"math"
	"math/bits"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apiserver/pkg/cel/library"
)

// The functions that charge for an argument of a call. cel-go counts the cost of a call after it, when one call of these
// may have taken hours; a charged argument is passed through such a function, which is counted before the call.
const (
	// chargeWeight is for calls that traverse a value once.
	chargeWeight = "@weight"
	// chargeSquare is for calls that compare each element of a list with many, or a text at each place of another.
	chargeSquare = "@square"
	// chargeText is for calls whose result is a multiple of a text.
	chargeText = "@text"
	// chargeLoop is for what is iterated over: cel-go's count keeps values of each iteration and searches them in the next,
	// so that its time is quadratic in the length of a loop.
	chargeLoop = "@loop"
	// chargePattern is for a text that a pattern is matched with; the second argument is the size of the pattern.
	chargePattern = "@pattern"
)

// charges are the arguments that are charged for, the target of a method first. Those of comparisons are only where both
// sides may contain other values.
var charges = map[string][]string{
	operators.Equals: {chargeWeight, chargeWeight}, operators.NotEquals: {chargeWeight, chargeWeight},
	operators.In:    {"", chargeWeight},
	"sets.contains": {chargeSquare, chargeSquare}, "sets.intersects": {chargeSquare, chargeSquare},
	"sets.equivalent": {chargeSquare, chargeSquare},
	"distinct":        {chargeSquare}, "sort": {chargeSquare}, "@sortByAssociatedKeys": {chargeWeight, chargeSquare},
	"flatten": {chargeWeight}, "join": {chargeWeight}, "format": {"", chargeWeight}, "split": {chargeText},
	"replace": {chargeText, "", chargeSquare}, "indexOf": {"", chargeSquare}, "lastIndexOf": {"", chargeSquare},
	overloads.Matches: {chargePattern},
}

// chargeFunctions declares the functions that charge. Authors cannot write their names.
func chargeFunctions() []cel.EnvOption {
	var all []cel.EnvOption
	for _, name := range []string{chargeWeight, chargeSquare, chargeText, chargeLoop} {
		all = append(all, cel.Function(name, cel.Overload(name, []*cel.Type{cel.DynType}, cel.DynType,
			cel.UnaryBinding(func(v ref.Val) ref.Val { return v }))))
	}
	return append(all, cel.Function(chargePattern, cel.Overload(chargePattern, []*cel.Type{cel.DynType, cel.IntType},
		cel.DynType, cel.BinaryBinding(func(v, _ ref.Val) ref.Val { return v }))))
}

// charger passes arguments of calls in a checked expression through the functions that charge.
type charger struct {
	ast     *celast.AST
	factory celast.ExprFactory
	last    int64 // the highest ID
}

// chargeArguments changes a checked expression so that it charges for arguments, and for what it iterates over.
func chargeArguments(checked *cel.Ast) {
	c := &charger{ast: checked.NativeRep(), factory: celast.NewExprFactory()}
	for id := range c.ast.IDs() {
		c.last = max(c.last, id)
	}
	var all []celast.Expr
	celast.PostOrderVisit(c.ast.Expr(), celast.NewExprVisitor(func(x celast.Expr) { all = append(all, x) }))
	for _, x := range all {
		switch x.Kind() {
		case celast.ComprehensionKind:
			c.pass(x.AsComprehension().IterRange(), chargeLoop)
		case celast.CallKind:
			c.passArguments(x.AsCall())
		default:
		}
	}
}

func (c *charger) passArguments(of celast.CallExpr) {
	args := of.Args()
	if of.IsMemberFunction() {
		args = slices.Concat([]celast.Expr{of.Target()}, args)
	}
	for i, by := range charges[of.FunctionName()] {
		switch {
		case by == "" || i >= len(args) || by == chargeWeight && !deep(c.ast, of.FunctionName(), args):
		case by == chargePattern:
			size, _ := patternSize(args[len(args)-1]) // inspect refuses what has none
			c.pass(args[i], by, types.Int(size))      //nolint:gosec // of a pattern
		default:
			c.pass(args[i], by)
		}
	}
}

// pass replaces an expression by a call with it, and with literals.
func (c *charger) pass(x celast.Expr, function string, literals ...ref.Val) {
	c.last++
	inner := c.factory.NewUnspecifiedExpr(c.last)
	inner.SetKindCase(x)
	c.ast.SetType(c.last, c.ast.GetType(x.ID()))
	if reference, ok := c.ast.ReferenceMap()[x.ID()]; ok {
		c.ast.SetReference(c.last, reference)
	}
	args := []celast.Expr{inner}
	for _, literal := range literals {
		c.last++
		args = append(args, c.factory.NewLiteral(c.last, literal))
		c.ast.SetType(c.last, types.IntType)
	}
	x.SetKindCase(c.factory.NewCall(0, function, args...))
	c.ast.SetReference(x.ID(), celast.NewFunctionReference(function))
}

// deep reports whether a call may traverse values that contain others.
func deep(ast *celast.AST, function string, args []celast.Expr) bool {
	switch function {
	case operators.Equals, operators.NotEquals:
		return !isFlat(ast.GetType(args[0].ID())) && !isFlat(ast.GetType(args[1].ID()))
	case operators.In:
		list := ast.GetType(args[1].ID())
		return !isFlat(ast.GetType(args[0].ID())) &&
			(list.Kind() != types.ListKind || !isFlat(list.Parameters()[0])) && list.Kind() != types.MapKind
	}
	return true
}

// counted counts what a call costs when it runs. It implements interpreter.ActualCostEstimator.
type counted struct{ library.CostEstimator }

// CallCost returns the cost of a finished call; nil for cel-go's cost.
func (c *counted) CallCost(function, overload string, args []ref.Val, result ref.Val) *uint64 {
	var cost uint64
	switch function {
	case chargeWeight:
		cost = weigh(args[0], RuleCostLimit)
	case chargeSquare:
		if text, ok := args[0].(types.String); ok {
			cost = mul(uint64(len(text)), uint64(len(text)))
		} else {
			cost = mul(sizeOf(args[0]), weigh(args[0], RuleCostLimit)) / 8
		}
	case chargeText:
		n := sizeOf(args[0])
		cost = n/10 + mul(n, n)/maxSeenText
	case chargeLoop:
		n := sizeOf(args[0])
		cost = 1 + mul(n, n)/100
	case chargePattern:
		size, _ := args[1].(types.Int)
		cost = patternCost(sizeOf(args[0]), uint64(size)) //nolint:gosec // of a pattern
	case overloads.Matches:
		cost = 1
	case "semver_compare", "replace", "format", "join", "strings.quote", "charAt", "reverse", "string", "bytes", "int",
		"uint", "double", "bool", "timestamp", "duration":
		n := uint64(0)
		for _, v := range append([]ref.Val{result}, args...) {
			n += sizeOf(v)
		}
		cost = linearCost(n)
	default:
		if strings.HasPrefix(function, "get") && len(args) > 1 { // a time zone given by name reads the zone's file
			cost = 500
			break
		}
		return c.CostEstimator.CallCost(function, overload, args, result)
	}
	return &cost
}

// linearCost is the cost of a call that reads or writes texts of so many characters.
func linearCost(n uint64) uint64 { return 5 + n/5 }

// patternCost is the cost of a match: RE2 takes time proportional to the text's length times the instructions.
func patternCost(text, instructions uint64) uint64 { return 5 + mul(text, 4+instructions)/4 }

// sizeOf returns the length of a text, without counting its characters, or the number of elements.
func sizeOf(v ref.Val) uint64 {
	switch v := v.(type) {
	case types.String:
		return uint64(len(v))
	case traits.Sizer:
		if n, ok := v.Size().(types.Int); ok && n > 0 {
			return uint64(n)
		}
	}
	return 1
}

// weigh returns the cost of traversing a value in all its depth, up to about a limit.
func weigh(v ref.Val, limit uint64) uint64 {
	weight := uint64(1)
	switch v := v.(type) {
	case types.String:
		weight += uint64(len(v)) / 10
	case traits.Mapper:
		for it := v.Iterator(); it.HasNext() == types.True && weight < limit; {
			key := it.Next()
			weight += weigh(key, limit)
			if value, found := v.Find(key); found {
				weight += weigh(value, limit-min(limit, weight))
			}
		}
	case traits.Lister:
		for it := v.Iterator(); it.HasNext() == types.True && weight < limit; {
			weight += weigh(it.Next(), limit-min(limit, weight))
		}
	}
	return weight
}

// mul saturates.
func mul(a, b uint64) uint64 {
	if high, low := bits.Mul64(a, b); high == 0 {
		return low
	}
	return math.MaxUint64
}

// The sizes for which rules are admitted: a rule whose estimate for them exceeds the limit is refused. What it costs on
// the bundle at hand is counted while it runs.
const (
	hintedElements = 64  // of a list or map
	hintedText     = 256 // characters
	hintedType     = 64  // characters of the type of a property
	hintedCluster  = 32  // properties of the cluster
)

// sizes are the hinted sizes of the values in an expression, by which cel-go and the API server's libraries estimate what
// it costs.
type sizes struct {
	library.CostEstimator
	// ranges are the expressions that are iterated over: the size of such a value is its number of elements.
	ranges map[int64]bool
}

// estimate returns the highest cost of an expression for inputs of the hinted sizes.
func estimate(ast *cel.Ast) uint64 {
	s := &sizes{ranges: map[int64]bool{}}
	s.SizeEstimator = s
	celast.PostOrderVisit(ast.NativeRep().Expr(), celast.NewExprVisitor(func(x celast.Expr) {
		if x.Kind() == celast.ComprehensionKind {
			s.ranges[x.AsComprehension().IterRange().ID()] = true
		}
	}))
	cost, err := checker.Cost(ast.NativeRep(), s)
	if err != nil {
		return math.MaxUint64
	}
	return cost.Max
}

// EstimateSize returns the size of a value that does not follow from the expression.
func (s *sizes) EstimateSize(node checker.AstNode) *checker.SizeEstimate {
	n, path, kind := uint64(hintedElements), strings.Join(node.Path(), "."), node.Type().Kind()
	switch {
	case strings.HasSuffix(path, "properties.@items.type"):
		n = hintedType
	case strings.HasSuffix(path, "properties.@items"):
		n = 2 // type and value
	case path == "cluster.properties":
		n = hintedCluster
	case isFlat(node.Type()) && kind != types.StringKind && kind != types.BytesKind:
		n = 1
	case kind == types.ListKind, kind == types.MapKind, node.Expr() != nil && s.ranges[node.Expr().ID()]:
	default:
		n = hintedText
	}
	return &checker.SizeEstimate{Max: n}
}

// EstimateCallCost returns the cost of one call, without the cost of its arguments; nil for cel-go's estimate.
func (s *sizes) EstimateCallCost(
	function, overload string, target *checker.AstNode, args []checker.AstNode,
) *checker.CallEstimate {
	if function != "lists.range" {
		return s.CostEstimator.EstimateCallCost(function, overload, target, args)
	}
	n := uint64(maxRange)
	if x := args[0].Expr(); x.Kind() == celast.LiteralKind {
		if literal, ok := x.AsLiteral().(types.Int); ok {
			n = uint64(max(literal, 0))
		}
	}
	return &checker.CallEstimate{CostEstimate: checker.CostEstimate{Max: n}, ResultSize: &checker.SizeEstimate{Max: n}}
}

// isFlat reports whether values of a type contain no others.
func isFlat(t *types.Type) bool {
	switch t.Kind() {
	case types.DynKind, types.AnyKind, types.ListKind, types.MapKind, types.StructKind, types.TypeParamKind:
		return false
	default:
		return true
	}
}
