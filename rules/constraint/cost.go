package constraint

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/google/cel-go/checker"
	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
)

// estimator bounds what an expression can cost for inputs of a shape. It follows cel-go's checker.Cost, which adds up
// an expression's parts, and differs in three ways:
//
//   - Sizes that cel-go loses track of are bounded rather than unknown. Macros give rules no accumulators of their own,
//     so values flow through the expression's nodes without a cycle: a text that no node enlarges is at most as long
//     as the longest input or literal, and every addition can double that at most once. Where a node enlarges by a
//     factor that does not stand in the expression, what is lost stays unknown, which refuses the rule.
//   - Comparisons are charged for the depth of values. cel-go charges the top level only, and a comparison of two deep
//     values in two loops could run for minutes within a small estimate.
//   - Every function is estimated here (calls.go); one that is not makes the cost unknown.
type estimator struct {
	ast        *celast.AST
	vocabulary *vocabulary
	// uses are the attributes that the expression refers to.
	uses Attributes
	// ranges are the expressions that are iterated over: the size of a value is then its number of elements, not of
	// characters.
	ranges map[int64]bool
	// untrusted are names that cel-go's paths do not distinguish from a variable.
	untrusted map[string]bool
	// literalText and literalElements are the largest literals.
	literalText, literalElements uint64
	// longer and wider are the factors by which a text, or a list, can exceed its inputs.
	longer, wider uint64
	// splits is set if texts become lists.
	splits bool
	// grows is set if a node enlarges by an unknown factor.
	grows bool
	// flattens and joins are the numbers of calls that enlarge by a factor that depends on inputs.
	flattens, joins int
	// builds is set if values may share parts, so that comparing them may cost more than building them did.
	builds bool
	// heavy is set if a single call may cost more than linear in its inputs. Costs are tracked after a call, so such an
	// expression may only run if its estimate is within the limit.
	heavy bool
	// instructions is the size of each compiled regular expression.
	instructions map[string]uint64
}

// unbounded is a size or cost without a bound.
const unbounded = math.MaxUint64

// cost returns the maximum cost of the expression for inputs of a shape.
func (e *estimator) cost(s shape) uint64 {
	estimate, err := checker.Cost(e.ast, &sizes{estimator: e, shape: s})
	if err != nil {
		return unbounded
	}
	return estimate.Max
}

// tooCostly returns the error for the author of an expression.
func (e *estimator) tooCostly(cost uint64) error {
	const assumed = "for a bundle of 64 properties, texts of 256 characters and lists of 64 elements"
	if cost >= 1<<50 {
		return fmt.Errorf("costs too much: its cost cannot be bounded %s; avoid building large texts and lists, and compare single fields instead of whole values", assumed)
	}
	return fmt.Errorf("costs too much: up to %d units %s, the limit is %d; nest fewer loops, compare shorter texts",
		cost, assumed, RuleCostLimit)
}

// sizes is an estimator for inputs of one shape; cel-go calls it.
type sizes struct {
	*estimator
	shape shape
}

// text and elements bound any value in the expression.
func (s *sizes) text() uint64 {
	switch n := s.unjoined(); {
	case s.grows:
		return unbounded
	case s.joins > 0:
		return mul(n, 1+2*s.input())
	default:
		return n
	}
}

// unjoined bounds the texts that join does not create.
func (s *sizes) unjoined() uint64 {
	if s.grows {
		return unbounded
	}
	return mul(s.longer, max(up(s.shape.text), up(s.shape.typeText), s.literalText, 64))
}

func (s *sizes) elements() uint64 {
	if s.grows || s.flattens > 0 {
		return unbounded
	}
	return s.input()
}

// input bounds the lists and maps of an expression that enlarges them only by addition.
func (s *sizes) input() uint64 {
	n := max(up(s.shape.elements), up(s.shape.rules), up(s.shape.properties), up(s.shape.cluster), s.literalElements)
	if s.splits {
		n = max(n, s.unjoined())
	}
	return mul(s.wider, n)
}

// ruleListNames is the maximum number of lists in a rule of RBAC or of a webhook.
const ruleListNames = 8

// listsOfRules are the variables that are lists of rules, of RBAC or of webhooks, or of images.
var listsOfRules = map[string]bool{varClusterPermissions: true, varPermissions: true, varWebhooks: true,
	varImages: true}

// root returns the variable that an expression's value is a part of, "" if unknown.
func (s *sizes) root(path []string) string {
	if len(path) == 0 || s.untrusted[path[0]] {
		return ""
	}
	i, known := s.vocabulary.index[path[0]]
	if !known || s.vocabulary.variables[i].write != nil { // the type alone bounds a field of a write
		return ""
	}
	return path[0]
}

// EstimateSize bounds the size of a value whose size does not follow from the expression. It implements
// checker.CostEstimator.
func (s *sizes) EstimateSize(node checker.AstNode) *checker.SizeEstimate {
	if t := node.Type(); t != nil && isScalar(t) && t.Kind() != types.StringKind && t.Kind() != types.BytesKind {
		return nil // cel-go knows these
	}
	n := s.size(node)
	if n == unbounded {
		return nil
	}
	return &checker.SizeEstimate{Max: n}
}

func (s *sizes) size(node checker.AstNode) uint64 {
	path := node.Path()
	iterated := node.Expr() != nil && s.ranges[node.Expr().ID()]
	switch s.root(path) {
	case varProperties:
		return s.propertySize(path[1:], up(s.shape.properties), iterated)
	case varCluster:
		if len(path) > 1 && path[1] == "properties" {
			return s.propertySize(path[2:], up(s.shape.cluster), iterated)
		}
		return max(up(s.shape.text), 3)
	case varClusterPermissions, varPermissions, varWebhooks, varConversionCRDs, varAnnotations, varChange, varImages,
		varConfig:
		if len(path) == 1 && listsOfRules[path[0]] {
			return up(s.shape.rules)
		}
		if k := node.Type().Kind(); k == types.ListKind || k == types.MapKind {
			return max(up(s.shape.elements), ruleListNames)
		}
		return up(s.shape.text)
	case varNamespace, varCatalog, varDeprecated:
		return max(up(s.shape.text), up(s.shape.elements), 3)
	case "":
	default:
		return up(s.shape.text)
	}
	if iterated {
		return s.elements()
	}
	switch node.Type().Kind() {
	case types.StringKind:
		return s.text()
	case types.ListKind, types.MapKind:
		return s.elements()
	default:
		return max(s.text(), s.elements())
	}
}

// propertySize returns the size of a value within a list of properties.
func (s *sizes) propertySize(path []string, count uint64, iterated bool) uint64 {
	switch {
	case len(path) == 0:
		return count
	case len(path) == 1:
		return 2 // type and value
	case len(path) == 2 && path[1] == "type":
		return up(s.shape.typeText)
	case iterated:
		return up(s.shape.elements)
	default:
		return max(up(s.shape.text), up(s.shape.typeText), up(s.shape.elements))
	}
}

// weight bounds the cost of traversing a value recursively.
func (s *sizes) weight(node checker.AstNode) uint64 {
	if expr := node.Expr(); expr != nil {
		if w, ok := literalWeight(expr); ok {
			return w
		}
	}
	if t := node.Type(); isScalar(t) {
		if t.Kind() == types.StringKind || t.Kind() == types.BytesKind {
			return 1 + s.of(node)/10
		}
		return 1
	}
	item := up(s.shape.weight)
	path := node.Path()
	switch s.root(path) {
	case varProperties:
		return s.propertyWeight(path[1:], up(s.shape.properties), item)
	case varCluster:
		if len(path) > 1 && path[1] == "properties" {
			return s.propertyWeight(path[2:], up(s.shape.cluster), item)
		}
		return add(mul(up(s.shape.cluster), item+10), up(s.shape.text))
	case varNamespace, varCatalog, varDeprecated:
		return mul(up(s.shape.elements), 2+up(s.shape.text)/5)
	case varClusterPermissions, varPermissions, varWebhooks, varConversionCRDs, varAnnotations, varChange, varImages,
		varConfig:
		return s.typeWeight(node.Type())
	}
	if node.Type().Kind() == types.ListKind || node.Type().Kind() == types.MapKind {
		return mul(s.of(node), s.partWeight(node.Type()))
	}
	return s.typeWeight(node.Type())
}

func (s *sizes) propertyWeight(path []string, count, item uint64) uint64 {
	whole := item + 4 + up(s.shape.typeText)/10
	switch {
	case len(path) == 0:
		return mul(count, whole)
	case len(path) == 1:
		return whole
	case path[1] == "type":
		return 1 + up(s.shape.typeText)/10
	default:
		return item
	}
}

// typeWeight bounds the weight of a value of which only the type is known.
func (s *sizes) typeWeight(t *types.Type) uint64 {
	switch t.Kind() {
	case types.ListKind, types.MapKind:
		return mul(s.elements(), s.partWeight(t))
	case types.StringKind, types.BytesKind:
		return add(1, s.text()/10)
	default:
		if isScalar(t) {
			return 1
		}
		if s.builds {
			return unbounded
		}
		return max(up(s.shape.weight), add(1, s.text()/10))
	}
}

// partWeight bounds the weight of one element of a list, or of one entry of a map.
func (s *sizes) partWeight(container *types.Type) uint64 {
	var sum uint64
	for _, parameter := range container.Parameters() {
		sum = add(sum, s.typeWeight(parameter))
	}
	return max(sum, 1)
}

// of returns the size of a node, from cel-go or from EstimateSize.
func (s *sizes) of(node checker.AstNode) uint64 {
	if known := node.ComputedSize(); known != nil {
		return known.Max
	}
	return s.size(node)
}

// literalWeight returns the weight of an expression that consists of literals.
func literalWeight(x celast.Expr) (uint64, bool) {
	sum := uint64(1)
	switch x.Kind() {
	case celast.LiteralKind:
		if text, ok := x.AsLiteral().(types.String); ok {
			sum += uint64(len(text)) / 10
		}
		return sum, true
	case celast.ListKind:
		for _, element := range x.AsList().Elements() {
			w, ok := literalWeight(element)
			if !ok {
				return 0, false
			}
			sum += w
		}
		return sum, true
	case celast.MapKind:
		for _, entry := range x.AsMap().Entries() {
			key, ok := literalWeight(entry.AsMapEntry().Key())
			value, alsoOK := literalWeight(entry.AsMapEntry().Value())
			if !ok || !alsoOK {
				return 0, false
			}
			sum += key + value
		}
		return sum, true
	default:
		return 0, false
	}
}

// add and mul saturate at unbounded.
func add(a, b uint64) uint64 {
	if sum, carry := bits.Add64(a, b, 0); carry == 0 {
		return sum
	}
	return unbounded
}

func mul(a, b uint64) uint64 {
	if high, low := bits.Mul64(a, b); high == 0 {
		return low
	}
	return unbounded
}

// up returns the size that a shape stores as a power of two.
func up(n uint8) uint64 { return 1 << min(n, 62) }
