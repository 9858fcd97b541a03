package constraint

import (
	"fmt"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	celast "github.com/google/cel-go/common/ast"
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

// inspect returns the attributes that an expression refers to, and an error for what cel-go's type checker does not
// check.
func (v *vocabulary) inspect(ast *cel.Ast) (uses Attributes, fault error) {
	root, shadowed := ast.NativeRep().Expr(), map[string]bool{}
	celast.PostOrderVisit(root, celast.NewExprVisitor(func(x celast.Expr) {
		if x.Kind() == celast.ComprehensionKind {
			shadowed[x.AsComprehension().IterVar()] = true
		}
	}))
	celast.PostOrderVisit(root, celast.NewExprVisitor(func(x celast.Expr) {
		var err error
		switch x.Kind() {
		case celast.IdentKind:
			uses |= v.attributes[x.AsIdent()]
		case celast.SelectKind:
			err = v.inspectSelect(x.AsSelect(), shadowed)
		case celast.CallKind:
			if call := x.AsCall(); call.FunctionName() == overloads.Matches {
				_, err = patternSize(call.Args()[len(call.Args())-1])
			}
		default:
		}
		if fault == nil {
			fault = err
		}
	}))
	// A comprehension may shadow a variable in one place and refer to it in another: assume that all are used.
	for name, attribute := range v.attributes {
		if base, _, _ := strings.Cut(name, "."); shadowed[base] {
			uses |= attribute
		}
	}
	return uses, fault
}

func (v *vocabulary) inspectSelect(s celast.SelectExpr, shadowed map[string]bool) error {
	owner := ""
	switch operand := s.Operand(); operand.Kind() {
	case celast.IdentKind:
		owner = operand.AsIdent()
	case celast.SelectKind:
		if inner := operand.AsSelect(); inner.Operand().Kind() == celast.IdentKind {
			owner = inner.Operand().AsIdent() + "." + inner.FieldName()
		}
	default:
	}
	base, _, _ := strings.Cut(owner, ".")
	fields, known := v.fields[owner]
	if !known || shadowed[base] || slices.Contains(fields, s.FieldName()) {
		return nil
	}
	fields = v.fieldsOf(owner)
	if slices.Contains(fields, s.FieldName()) { // only has() leaves one of these to be selected
		return fmt.Errorf("does not compile: %s.%s is in every bundle; leave out has()", owner, s.FieldName())
	}
	return fmt.Errorf("does not compile: %s has no field %s; it has %s", owner,
		text.Truncate(s.FieldName(), valueShown), strings.Join(fields, ", "))
}

// patternSize returns the number of compiled instructions of the pattern of matches(), which must be a literal: a match
// takes time proportional to the text's length times those, and "(a{1000}){10}" is short to write (threat: regex bombs).
func patternSize(x celast.Expr) (uint64, error) {
	pattern, ok := types.String(""), false
	if x.Kind() == celast.LiteralKind {
		pattern, ok = x.AsLiteral().(types.String)
	}
	if !ok {
		return 0, fmt.Errorf("does not compile: the pattern of matches() must be written out as a text, not computed")
	}
	shown := text.Truncate(string(pattern), valueShown)
	parsed, err := syntax.Parse(string(pattern), syntax.Perl)
	if err != nil {
		return 0, fmt.Errorf("does not compile: the pattern %q is not a regular expression (RE2): %s", shown,
			text.Truncate(err.Error(), valueShown))
	}
	size := maxRegexInstructions + 1
	if syntaxSize(parsed, 1) <= 20*maxRegexInstructions {
		compiled, err := syntax.Compile(parsed.Simplify())
		if err != nil {
			return 0, fmt.Errorf("does not compile: the pattern %q is not a regular expression (RE2): %s", shown,
				text.Truncate(err.Error(), valueShown))
		}
		size = len(compiled.Inst)
	}
	if size > maxRegexInstructions {
		return 0, fmt.Errorf("costs too much: the pattern %q compiles to more than %d instructions, the limit; use smaller repetitions", shown, maxRegexInstructions)
	}
	return uint64(size), nil //nolint:gosec // a length
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
