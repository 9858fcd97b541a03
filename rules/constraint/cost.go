package constraint

import (
	"math"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"k8s.io/apiserver/pkg/cel/library"
)

// The sizes for which rules are admitted: a rule whose estimate for them exceeds the limit is refused. What it costs on
// the bundle at hand is counted while it runs (count.go).
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
