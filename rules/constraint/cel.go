package constraint

import (
	"crypto/sha256"
	"fmt"
	"regexp/syntax"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/blang/semver/v4"
	"github.com/google/cel-go/cel"
	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/ext"
	"k8s.io/apiserver/pkg/cel/library"
	"k8s.io/utils/lru"

	"github.com/opgate/opgate/internal/text"
)

// newEnvironment returns the compiler for rules. For bundles it is a superset of OLM's (constraints.NewCelEnvironment
// in operator-framework/api): the same `properties` of the same type and the same semver_compare, with more variables,
// cel-go's extensions for strings, sets, lists and numbers, and the API server's libraries for versions, URLs and
// addresses. Its library for quantities is left out: quantity("1e-9999999") takes ten seconds. The versions are pinned,
// so that an upgrade adds no function whose cost is not known; TestFunctions enumerates them.
func (v *vocabulary) newEnvironment() (*cel.Env, error) {
	return cel.NewEnv(slices.Concat(v.options(), chargeFunctions(), []cel.EnvOption{
		cel.Function("semver_compare",
			cel.Overload("semver_compare", []*cel.Type{cel.AnyType, cel.AnyType}, cel.IntType,
				cel.BinaryBinding(semverCompare))),
		ext.Strings(ext.StringsVersion(5)),
		ext.Lists(ext.ListsVersion(3), ext.ListsMaxRangeSize(maxRange)),
		ext.Sets(),
		ext.Math(ext.MathVersion(3)),
		library.SemverLib(library.SemverVersion(1)), library.URLs(), library.IP(), library.CIDR(),
		cel.ParserExpressionSizeLimit(maxRuleBytes),
		cel.ParserRecursionLimit(maxRuleDepth),
		cel.ExpressionNodeLimit(maxRuleNodes),
	})...)
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

// program is one compiled CEL expression. It is immutable.
type program struct {
	source     string
	vocabulary *vocabulary
	// program accepts unknown inputs, and counts its cost while it runs.
	program cel.Program
	// uses are the attributes that the expression refers to.
	uses Attributes
	// estimate is the highest cost for inputs of the hinted sizes.
	estimate uint64
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
	p = &program{source: source, vocabulary: v}
	if p.uses, err = v.inspect(ast); err != nil {
		return nil, err
	}
	if p.estimate = estimate(ast); p.estimate > RuleCostLimit {
		return nil, tooCostly(p.estimate)
	}
	chargeArguments(ast)
	p.program, err = env.Program(ast, cel.InterruptCheckFrequency(interruptEvery),
		cel.EvalOptions(cel.OptOptimize, cel.OptPartialEval), cel.CostTracking(&counted{}), cel.CostLimit(RuleCostLimit))
	if err != nil {
		return nil, fmt.Errorf("fails for every bundle: %s", text.Truncate(err.Error(), ruleShown))
	}
	return p, nil
}

// tooCostly returns the error for the author of an expression.
func tooCostly(cost uint64) error {
	const assumed = "for a bundle of 64 properties, texts of 256 characters and lists of 64 elements"
	if cost >= 1<<50 {
		return fmt.Errorf("costs too much: its cost cannot be bounded %s; avoid building large texts and lists, and compare single fields instead of whole values", assumed)
	}
	return fmt.Errorf("costs too much: up to %d units %s, the limit is %d; nest fewer loops, compare shorter texts",
		cost, assumed, RuleCostLimit)
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

// programsKept bounds the cache. A program takes about 60 KiB.
const programsKept = 1024

// programKey identifies a program: the source, what it judges, and the result type.
type programKey struct {
	digest [sha256.Size]byte
	on     Target
	text   bool // a messageExpression
}

// compiled is a program or a compile error. Errors are cached too: otherwise an attacker could make every request
// compile again.
type compiled struct {
	once    sync.Once
	done    atomic.Bool
	program *program
	err     error
}

// programs caches the last compiled programs of all definitions and bundles. Definitions also hold their own programs,
// so that an eviction never affects a cluster constraint.
var programs = lru.New(programsKept)

// ruleKey returns the key of a rule on bundles.
func ruleKey(source string) programKey { return programKey{digest: sha256.Sum256([]byte(source))} }

// compileCached returns the cached program of an expression with result bool, or string, and compiles it if needed.
func compileCached(source string, on Target, text bool) (*program, error) {
	key := ruleKey(source)
	key.on, key.text = on, text
	entry, ok := lookup(key)
	if !ok {
		entry = new(compiled)
		// Two definitions may compile the same rule concurrently; both results are equal.
		programs.Add(key, entry)
	}
	entry.once.Do(func() {
		result := cel.BoolType
		if text {
			result = cel.StringType
		}
		entry.program, entry.err = vocabularies[on].compile(source, result)
		entry.done.Store(true)
	})
	return entry.program, entry.err
}

// ready returns the result without waiting for a compilation in progress.
func (c *compiled) ready() (*program, error) {
	if !c.done.Load() {
		return nil, errNotCompiled
	}
	return c.program, c.err
}

func lookup(key programKey) (*compiled, bool) {
	if v, ok := programs.Get(key); ok {
		entry, ok := v.(*compiled)
		return entry, ok
	}
	return nil, false
}

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
