package constraint

import (
	"fmt"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"

	"github.com/opgate/opgate/internal/text"
)

// bundleFields are the keys of the map variables of rules on bundles.
var bundleFields = map[string][]string{
	varCatalog:                 {"name", "namespace"},
	varDeprecated:              {"package", "channel", "version"},
	varChange:                  ChangeLists,
	varCluster:                 aroundFields[varCluster],
	varNamespace:               aroundFields[varNamespace],
	varNamespace + ".metadata": aroundFields[varNamespace+".metadata"],
}

// newEstimator inspects an expression once for what cel-go's type checker does not check, and collects what estimates
// need.
func newEstimator(ast *cel.Ast, in *vocabulary) (*estimator, error) {
	e := &estimator{ast: ast.NativeRep(), vocabulary: in, ranges: map[int64]bool{}, instructions: map[string]uint64{},
		untrusted: map[string]bool{}, longer: 1, wider: 1}
	root := e.ast.Expr()
	shadowed := map[string]bool{}
	celast.PostOrderVisit(root, celast.NewExprVisitor(func(x celast.Expr) {
		if x.Kind() == celast.ComprehensionKind {
			c := x.AsComprehension()
			shadowed[c.IterVar()] = true
			e.ranges[c.IterRange().ID()] = true
		}
	}))
	var fault error
	note := func(err error) {
		if fault == nil {
			fault = err
		}
	}
	celast.PostOrderVisit(root, celast.NewExprVisitor(func(x celast.Expr) {
		switch x.Kind() {
		case celast.IdentKind:
			if name := x.AsIdent(); !shadowed[name] {
				e.uses |= e.vocabulary.attributes[name]
			}
		case celast.SelectKind:
			note(e.inspectSelect(x.AsSelect(), shadowed))
		case celast.CallKind:
			note(e.inspectCall(x))
		case celast.LiteralKind:
			if text, ok := x.AsLiteral().(types.String); ok {
				e.literalText = max(e.literalText, uint64(len(text)))
			}
		case celast.ListKind:
			elements := x.AsList().Elements()
			e.literalElements = max(e.literalElements, uint64(len(elements)))
			e.inspectParts(elements)
		case celast.MapKind:
			var parts []celast.Expr
			for _, entry := range x.AsMap().Entries() {
				parts = append(parts, entry.AsMapEntry().Key(), entry.AsMapEntry().Value())
			}
			e.literalElements = max(e.literalElements, uint64(len(parts)))
			e.inspectParts(parts)
		default:
		}
	}))
	// A factor that depends on inputs is bounded once; two of them, or one on lists made from texts, would multiply.
	if e.joins > 1 || e.joins > 0 && (e.splits || e.flattens > 0) {
		e.grows = true
	}
	// A comprehension may shadow a variable in one place and refer to it in another: assume that all are used.
	for name, attribute := range e.vocabulary.attributes {
		if base, _, _ := strings.Cut(name, "."); shadowed[base] {
			e.uses |= attribute
		}
	}
	return e, fault
}

func (e *estimator) inspectSelect(s celast.SelectExpr, shadowed map[string]bool) error {
	owner := ""
	switch operand := s.Operand(); operand.Kind() {
	case celast.IdentKind:
		owner = operand.AsIdent()
	case celast.SelectKind:
		if inner := operand.AsSelect(); inner.Operand().Kind() == celast.IdentKind {
			owner = inner.Operand().AsIdent() + "." + inner.FieldName()
		}
	default:
		// For a field of a value without a path, cel-go returns a path that begins with the field's name:
		// {"properties": x}.properties would count as the variable.
		e.untrusted[s.FieldName()] = true
	}
	base, _, _ := strings.Cut(owner, ".")
	fields, known := e.vocabulary.fields[owner]
	if !known || shadowed[base] || slices.Contains(fields, s.FieldName()) {
		return nil
	}
	fields = e.vocabulary.fieldsOf(owner)
	if slices.Contains(fields, s.FieldName()) { // only has() leaves one of these to be selected
		return fmt.Errorf("does not compile: %s.%s is in every bundle; leave out has()", owner, s.FieldName())
	}
	return fmt.Errorf("does not compile: %s has no field %s; it has %s", owner,
		text.Truncate(s.FieldName(), valueShown), strings.Join(fields, ", "))
}

// inspectParts detects values that are composed of others twice: repeating [x, x] n times builds a value that costs 2^n
// to compare.
func (e *estimator) inspectParts(parts []celast.Expr) {
	if len(parts) < 2 {
		return
	}
	for _, part := range parts {
		if _, literal := literalWeight(part); !literal && !isScalar(e.ast.GetType(part.ID())) {
			e.builds = true
		}
	}
}

// isScalar reports whether values of a type contain no others.
func isScalar(t *types.Type) bool {
	switch t.Kind() {
	case types.BoolKind, types.IntKind, types.UintKind, types.DoubleKind, types.DurationKind, types.TimestampKind,
		types.NullTypeKind, types.TypeKind, types.StringKind, types.BytesKind:
		return true
	default:
		return false
	}
}

func (e *estimator) inspectCall(x celast.Expr) error {
	call := x.AsCall()
	switch name := call.FunctionName(); name {
	case overloads.TypeConvertDyn:
		e.builds = true
	case operators.Conditional:
		if !isScalar(e.ast.GetType(x.ID())) && !sameKind(e.ast.GetType(call.Args()[1].ID()),
			e.ast.GetType(call.Args()[2].ID())) {
			e.builds = true
		}
	case operators.Add, "strings.quote", "split", "replace", "join", "format", "lists.range":
		e.inspectGrowth(x)
	case "flatten":
		e.flattens++
		e.heavy = true
	case "indexOf", "lastIndexOf":
		if call.Args()[0].Kind() != celast.LiteralKind {
			e.heavy = true
		}
	case "sets.contains", "sets.intersects", "sets.equivalent", "distinct", "sort", "@sortByAssociatedKeys":
		e.heavy = true
	case overloads.Matches:
		return e.inspectPattern(call)
	}
	return nil
}

// inspectGrowth records by how much a call's result can exceed its inputs.
func (e *estimator) inspectGrowth(x celast.Expr) {
	call := x.AsCall()
	args, known := call.Args(), true
	switch call.FunctionName() {
	case operators.Add:
		switch t := e.ast.GetType(x.ID()); {
		case accumulates(call) || number(t):
		case t.Kind() == types.StringKind || t.Kind() == types.BytesKind:
			e.longer = mul(e.longer, 2)
		case t.Kind() == types.ListKind:
			e.wider = mul(e.wider, 2)
		default:
			e.longer, e.wider = mul(e.longer, 2), mul(e.wider, 2)
		}
		return
	case "strings.quote":
		e.longer = mul(e.longer, 3)
		return
	case "split":
		e.splits = true
		return
	case "replace":
		var text types.String
		if args[1].Kind() == celast.LiteralKind {
			text, known = args[1].AsLiteral().(types.String)
		} else {
			known = false
		}
		e.longer = mul(e.longer, 2+uint64(len(text)))
	case "join":
		if call.Target().Kind() == celast.ListKind {
			e.longer = mul(e.longer, 1+2*uint64(call.Target().AsList().Size())) //nolint:gosec // a length
		} else {
			e.joins++
		}
	case "format":
		known = args[0].Kind() == celast.ListKind
		if known {
			for _, element := range args[0].AsList().Elements() {
				known = known && isScalar(e.ast.GetType(element.ID()))
				e.longer = mul(e.longer, 2)
			}
			e.literalText = max(e.literalText, numberPrinted)
		}
	case "lists.range":
		var n uint64
		n, known = literalInt(args[0])
		e.literalElements = max(e.literalElements, n)
	}
	e.heavy = true
	e.grows = e.grows || !known
}

func sameKind(a, b *types.Type) bool { return a.Kind() == b.Kind() }

func number(t *types.Type) bool {
	return isScalar(t) && t.Kind() != types.StringKind && t.Kind() != types.BytesKind
}

// accumulates recognizes the addition that a macro (map, filter) generates: its result grows by one per iteration,
// which the size of the range covers.
func accumulates(call celast.CallExpr) bool {
	first := call.Args()[0]
	return first.Kind() == celast.IdentKind && (first.AsIdent() == "@result" || first.AsIdent() == "__result__")
}

// inspectPattern accepts only literal regular expressions, and counts their compiled instructions: a match takes time
// proportional to the text's length times those, and "(a{1000}){10}" is short to write (threat: regex bombs).
func (e *estimator) inspectPattern(call celast.CallExpr) error {
	args := call.Args()
	pattern := args[len(args)-1]
	literal, ok := types.String(""), false
	if pattern.Kind() == celast.LiteralKind {
		literal, ok = pattern.AsLiteral().(types.String)
	}
	if !ok {
		return fmt.Errorf("does not compile: the pattern of matches() must be written out as a text, not computed")
	}
	parsed, err := syntax.Parse(string(literal), syntax.Perl)
	if err != nil {
		return fmt.Errorf("does not compile: the pattern %q is not a regular expression (RE2): %s",
			text.Truncate(string(literal), valueShown), text.Truncate(err.Error(), valueShown))
	}
	if syntaxSize(parsed, 1) > 20*maxRegexInstructions {
		return tooLargePattern(string(literal))
	}
	compiled, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return fmt.Errorf("does not compile: the pattern %q is not a regular expression (RE2): %s",
			text.Truncate(string(literal), valueShown), text.Truncate(err.Error(), valueShown))
	}
	if len(compiled.Inst) > maxRegexInstructions {
		return tooLargePattern(string(literal))
	}
	e.instructions[string(literal)] = uint64(len(compiled.Inst))
	return nil
}

func tooLargePattern(pattern string) error {
	return fmt.Errorf("costs too much: the pattern %q compiles to more than %d instructions, the limit; use smaller repetitions", text.Truncate(pattern, valueShown), maxRegexInstructions)
}

// syntaxSize returns the size of a pattern with its repetitions expanded, without expanding them.
func syntaxSize(r *syntax.Regexp, times int) int {
	if r.Op == syntax.OpRepeat {
		times *= max(r.Min, r.Max, 1)
	}
	size := times * (1 + len(r.Rune))
	for _, sub := range r.Sub {
		size += syntaxSize(sub, times)
	}
	return size
}
