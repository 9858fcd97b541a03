package constraint

import (
	"math/bits"

	"github.com/google/cel-go/checker"
	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
)

// coreCalls are those whose cost cel-go's own estimate bounds: linear in the sizes that it knows.
var coreCalls = map[string]bool{
	operators.LogicalAnd: true, operators.LogicalOr: true, operators.LogicalNot: true, operators.Conditional: true,
	operators.NotStrictlyFalse: true, "__not_strictly_false__": true,
	operators.Less: true, operators.LessEquals: true, operators.Greater: true, operators.GreaterEquals: true,
	operators.Add: true, operators.Subtract: true, operators.Multiply: true, operators.Divide: true,
	operators.Modulo: true, operators.Negate: true,
	operators.Index: true, overloads.TypeConvertType: true, overloads.TypeConvertDyn: true,
	overloads.StartsWith: true, overloads.EndsWith: true, overloads.Contains: true,
	"math.abs": true, "math.ceil": true, "math.floor": true, "math.round": true, "math.trunc": true, "math.sign": true,
	"math.sqrt":  true,
	"math.isNaN": true, "math.isInf": true, "math.isFinite": true,
	"math.bitAnd": true, "math.bitOr": true, "math.bitXor": true, "math.bitNot": true, "math.bitShiftLeft": true,
	"math.bitShiftRight": true,
}

// EstimateCallCost bounds the cost of one call and the size of its result, without the cost of its arguments. It
// implements checker.CostEstimator and provides all estimates except those of coreCalls: cel-go's own for its
// extensions are not used, since some are too low here (join counts every element as one character).
func (s *sizes) EstimateCallCost(
	function, overload string, target *checker.AstNode, args []checker.AstNode,
) *checker.CallEstimate {
	if coreCalls[function] {
		return nil
	}
	all := args
	if target != nil {
		all = append([]checker.AstNode{*target}, args...)
	}
	estimate, ok := callEstimates[function]
	if !ok || len(all) == 0 {
		return call(unbounded)
	}
	return estimate(s, all, overload)
}

// callEstimate bounds a call by its arguments; the target of a method is the first.
type callEstimate func(s *sizes, args []checker.AstNode, overload string) *checker.CallEstimate

func call(cost uint64) *checker.CallEstimate {
	return &checker.CallEstimate{CostEstimate: checker.CostEstimate{Max: cost}}
}

// sized returns the estimate of a call whose result has a size.
func sized(cost, size uint64) *checker.CallEstimate {
	c := call(cost)
	c.ResultSize = &checker.SizeEstimate{Max: size}
	return c
}

var callEstimates = map[string]callEstimate{
	operators.Equals: compareCost, operators.NotEquals: compareCost,
	operators.In: inCost, operators.OldIn: inCost, overloads.DeprecatedIn: inCost,
	overloads.Size: func(s *sizes, args []checker.AstNode, _ string) *checker.CallEstimate {
		return call(add(1, s.of(args[0])/10))
	},

	overloads.TypeConvertString: func(s *sizes, args []checker.AstNode, _ string) *checker.CallEstimate {
		return sized(add(5, s.of(args[0])/5), max(64, s.of(args[0])))
	},
	overloads.TypeConvertBytes: func(s *sizes, args []checker.AstNode, _ string) *checker.CallEstimate {
		return sized(add(5, s.of(args[0])/5), mul(4, s.of(args[0])))
	},
	overloads.TypeConvertInt: convertCost, overloads.TypeConvertUint: convertCost,
	overloads.TypeConvertDouble: convertCost,
	overloads.TypeConvertBool:   convertCost, overloads.TypeConvertTimestamp: convertCost,
	overloads.TypeConvertDuration: convertCost,

	overloads.TimeGetFullYear: timeCost, overloads.TimeGetMonth: timeCost, overloads.TimeGetDayOfYear: timeCost,
	overloads.TimeGetDate: timeCost, overloads.TimeGetDayOfMonth: timeCost, overloads.TimeGetDayOfWeek: timeCost,
	overloads.TimeGetHours: timeCost, overloads.TimeGetMinutes: timeCost, overloads.TimeGetSeconds: timeCost,
	overloads.TimeGetMilliseconds: timeCost,

	overloads.Matches: matchesCost,
	"semver_compare": func(s *sizes, args []checker.AstNode, _ string) *checker.CallEstimate {
		return call(semverCost(s.of(args[0]), s.of(args[1])))
	},

	"charAt": func(s *sizes, args []checker.AstNode, _ string) *checker.CallEstimate {
		return sized(add(3, s.of(args[0])/10), 1)
	},
	"indexOf": searchCost, "lastIndexOf": searchCost,
	"lowerAscii": textCost, "upperAscii": textCost, "trim": textCost, "substring": textCost,
	"reverse": func(s *sizes, args []checker.AstNode, overload string) *checker.CallEstimate {
		if overload == "string_reverse" {
			return textCost(s, args, overload)
		}
		return listCost(s, args, overload)
	},
	"strings.quote": func(s *sizes, args []checker.AstNode, _ string) *checker.CallEstimate {
		return sized(add(3, s.of(args[0])), add(2, mul(2, s.of(args[0]))))
	},
	"replace": replaceCost, "split": splitCost, "join": joinCost, "format": formatCost,

	"slice": listCost, "lists.range": rangeCost, "flatten": flattenCost,
	"distinct": func(s *sizes, args []checker.AstNode, _ string) *checker.CallEstimate {
		n := s.of(args[0])
		return sized(add(20, mul(mul(n, n), s.elementWeight(args[0]))), n)
	},
	"sort": sortCost, "@sortByAssociatedKeys": sortCost,

	"sets.contains": setsCost, "sets.intersects": setsCost, "sets.equivalent": setsCost,
	"math.@min": leastCost, "math.@max": leastCost,
}

// semverCost is used by the runtime cost tracker too.
func semverCost(a, b uint64) uint64 { return add(20, add(a, b)/4) }

// compareCost: two values are compared recursively, up to the size of the smaller.
func compareCost(s *sizes, args []checker.AstNode, _ string) *checker.CallEstimate {
	return call(add(1, min(s.weight(args[0]), s.weight(args[1]))))
}

func inCost(s *sizes, args []checker.AstNode, overload string) *checker.CallEstimate {
	if overload == overloads.InMap {
		return call(add(2, min(s.weight(args[0]), s.text()/10)))
	}
	cost := mul(max(s.of(args[1]), 1), min(s.weight(args[0]), s.elementWeight(args[1])))
	if whole, ok := literalWeight(args[1].Expr()); ok {
		cost = min(cost, whole)
	}
	return call(add(1, cost))
}

func convertCost(s *sizes, args []checker.AstNode, _ string) *checker.CallEstimate {
	return call(add(5, s.of(args[0])/5))
}

// timeCost: a time zone given by name reads the zone's file.
func timeCost(_ *sizes, args []checker.AstNode, _ string) *checker.CallEstimate {
	if len(args) > 1 {
		return call(500)
	}
	return call(2)
}

// matchesCost: RE2 takes time proportional to the text's length times the number of instructions.
func matchesCost(s *sizes, args []checker.AstNode, _ string) *checker.CallEstimate {
	pattern := args[len(args)-1].Expr()
	if pattern.Kind() != celast.LiteralKind {
		return call(unbounded)
	}
	text, ok := pattern.AsLiteral().(types.String)
	if !ok {
		return call(unbounded)
	}
	instructions, ok := s.instructions[string(text)]
	if !ok {
		return call(unbounded)
	}
	return call(regexCost(s.of(args[0]), instructions))
}

// regexCost is used by the runtime cost tracker too.
func regexCost(text, instructions uint64) uint64 { return add(5, mul(text, 4+instructions)/4) }

func textCost(s *sizes, args []checker.AstNode, _ string) *checker.CallEstimate {
	n := s.of(args[0])
	return sized(add(3, n/5), n)
}

// searchCost: cel-go compares at each position.
func searchCost(s *sizes, args []checker.AstNode, _ string) *checker.CallEstimate {
	return call(add(3, mul(s.of(args[0]), add(4, s.of(args[1])))/10))
}

func replaceCost(s *sizes, args []checker.AstNode, _ string) *checker.CallEstimate {
	text, replacement := s.of(args[0]), s.of(args[2])
	result := add(text, mul(add(text, 1), replacement))
	return sized(add(3, add(text, result)/5), result)
}

func splitCost(s *sizes, args []checker.AstNode, _ string) *checker.CallEstimate {
	n := add(1, s.of(args[0]))
	return sized(add(12, n), n)
}

func joinCost(s *sizes, args []checker.AstNode, _ string) *checker.CallEstimate {
	n, separator, element := s.of(args[0]), uint64(0), s.unjoined()
	if len(args) > 1 {
		separator = s.of(args[1])
	}
	if whole, ok := literalText(args[0].Expr()); ok {
		element = min(element, whole)
	}
	result := mul(n, add(element, separator))
	return sized(add(add(3, n), result/5), result)
}

// literalText returns the number of characters in a list of literals.
func literalText(x celast.Expr) (uint64, bool) {
	if x.Kind() != celast.ListKind {
		return 0, false
	}
	var sum uint64
	for _, element := range x.AsList().Elements() {
		if element.Kind() != celast.LiteralKind {
			return 0, false
		}
		if text, ok := element.AsLiteral().(types.String); ok {
			sum += uint64(len(text))
		}
	}
	return sum, true
}

// numberPrinted is the length of the longest printed number: 309 digits and 100 decimals.
const numberPrinted = 450

// formatCost: each clause of the format prints one of the arguments, which must be a literal list so that their number
// is known.
func formatCost(s *sizes, args []checker.AstNode, _ string) *checker.CallEstimate {
	list := args[1].Expr()
	if list.Kind() != celast.ListKind {
		return call(unbounded)
	}
	result, cost := s.of(args[0]), uint64(5)
	for _, element := range list.AsList().Elements() {
		cost += 20
		t := s.ast.GetType(element.ID())
		switch {
		case number(t):
			result = add(result, numberPrinted)
		case element.Kind() == celast.LiteralKind:
			w, _ := literalWeight(element)
			result = add(result, 10*w)
		case t.Kind() == types.StringKind:
			result = add(result, s.text())
		default:
			result = add(result, mul(30, s.typeWeight(t)))
		}
	}
	return sized(add(cost, result/5), result)
}

func listCost(s *sizes, args []checker.AstNode, _ string) *checker.CallEstimate {
	n := s.of(args[0])
	return sized(add(12, n), n)
}

func rangeCost(_ *sizes, args []checker.AstNode, _ string) *checker.CallEstimate {
	n, ok := literalInt(args[0].Expr())
	if !ok {
		return sized(unbounded, unbounded)
	}
	return sized(add(12, n), n)
}

func literalInt(x celast.Expr) (uint64, bool) {
	if x.Kind() != celast.LiteralKind {
		return 0, false
	}
	n, ok := x.AsLiteral().(types.Int)
	return uint64(max(n, 0)), ok
}

// flattenCost: each level of nesting multiplies the number of elements by an unknown factor.
func flattenCost(s *sizes, args []checker.AstNode, _ string) *checker.CallEstimate {
	depth := uint64(1)
	if len(args) > 1 {
		d, ok := literalInt(args[1].Expr())
		if !ok || d > maxSeenDepth {
			return sized(unbounded, unbounded)
		}
		depth = d
	}
	if whole, ok := literalWeight(args[0].Expr()); ok {
		return sized(add(12, whole), whole)
	}
	if s.grows || s.flattens > 1 {
		return sized(unbounded, unbounded)
	}
	n := min(s.of(args[0]), s.input())
	for range depth {
		n = mul(n, s.input())
	}
	return sized(add(12, n), n)
}

func sortCost(s *sizes, args []checker.AstNode, _ string) *checker.CallEstimate {
	keys := args[len(args)-1]
	n := s.of(keys)
	log := uint64(bits.Len64(n)) //nolint:gosec // at most 64
	return sized(add(20, mul(mul(n, 4+2*log), s.elementWeight(keys))), s.of(args[0]))
}

func setsCost(s *sizes, args []checker.AstNode, _ string) *checker.CallEstimate {
	each := min(s.elementWeight(args[0]), s.elementWeight(args[1]))
	return call(add(3, mul(mul(2, mul(s.of(args[0]), s.of(args[1]))), each)))
}

func leastCost(s *sizes, args []checker.AstNode, _ string) *checker.CallEstimate {
	cost := uint64(5)
	for _, a := range args {
		if a.Type().Kind() == types.ListKind || !isScalar(a.Type()) {
			cost = add(cost, s.of(a))
		}
	}
	return call(cost)
}

// elementWeight bounds the weight of one element of a list, or key of a map.
func (s *sizes) elementWeight(list checker.AstNode) uint64 {
	if x := list.Expr(); x != nil && x.Kind() == celast.ListKind {
		if _, ok := literalWeight(x); ok {
			heaviest := uint64(1)
			for _, element := range x.AsList().Elements() {
				w, _ := literalWeight(element)
				heaviest = max(heaviest, w)
			}
			return heaviest
		}
	}
	path := list.Path()
	switch s.root(path) {
	case varProperties:
		return s.propertyWeight(append(path[1:len(path):len(path)], "@items"), 1, up(s.shape.weight))
	case varCluster:
		if len(path) > 1 && path[1] == "properties" {
			return s.propertyWeight(append(path[2:len(path):len(path)], "@items"), 1, up(s.shape.weight))
		}
	}
	if t := list.Type(); t.Kind() == types.ListKind {
		return s.partWeight(t)
	}
	return s.typeWeight(list.Type())
}
