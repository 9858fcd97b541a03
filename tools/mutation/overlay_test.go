package mutation

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opgate/opgate/rules"
)

// sources returns the files of a package, without its tests, with their mutations.
func sources(t *testing.T, pkg string) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("..", "..", pkg, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		file := pkg + "/" + filepath.Base(path)
		if found[file], err = mutate(file, string(source)); err != nil {
			t.Error(err)
		}
	}
	return found
}

// TestEveryReasonIsMutated: a function that makes a reason passes it to one that may drop it, or is mutated itself.
func TestEveryReasonIsMutated(t *testing.T) {
	for _, pkg := range []string{"rules", "rules/bundle", "rules/state", "rules/verdict", "rules/dependency",
		"rules/backstop", "admission"} {
		for file, source := range sources(t, pkg) {
			parsed, err := parser.ParseFile(token.NewFileSet(), file, source, parser.SkipObjectResolution)
			if err != nil {
				t.Errorf("%s does not compile with its mutations: %v", file, err)
				continue
			}
			for _, decl := range parsed.Decls {
				if makesReason(decl) && !calls(decl, "Refuse", "Warn", "Mutated") {
					t.Errorf("%s: %s makes a reason that no mutation drops", file, decl.(*ast.FuncDecl).Name.Name)
				}
			}
		}
	}
}

// makesReason reports whether a declaration has a literal of a Reason whose rule is not that of another one.
func makesReason(decl ast.Decl) (makes bool) {
	ast.Inspect(decl, func(n ast.Node) bool {
		literal, ok := n.(*ast.CompositeLit)
		if !ok {
			return true
		}
		elements := []ast.Expr{literal}
		of := literal.Type
		if list, ok := of.(*ast.ArrayType); ok {
			elements, of = literal.Elts, list.Elt
		}
		if named(of) != "Reason" {
			return true
		}
		for _, element := range elements {
			for _, field := range element.(*ast.CompositeLit).Elts {
				pair := field.(*ast.KeyValueExpr)
				makes = makes || named(pair.Key) == "Rule" && named(pair.Value) != "Rule"
			}
		}
		return true
	})
	return makes
}

func calls(decl ast.Decl, names ...string) (found bool) {
	ast.Inspect(decl, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		found = found || ok && slices.Contains(names, named(call.Fun))
		return true
	})
	return found
}

// named returns the name of an identifier, without its package or variable.
func named(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

func TestMutationsFailWithoutTheirText(t *testing.T) {
	for _, m := range mutations {
		for name, source := range map[string]string{"absent": "package other", "twice": m.after + m.after} {
			if _, err := mutate(m.file, source); err == nil {
				t.Errorf("%s: a mutation whose text is %s passes: %s", m.file, name, m.after)
			}
		}
	}
}

func TestMutants(t *testing.T) {
	all, err := Mutants(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range slices.Concat(rules.GateRules(), rules.Rules()) {
		if !slices.ContainsFunc(all, func(m string) bool { return strings.HasPrefix(m+" ", string(r.ID)+" ") }) {
			t.Errorf("rule %s has no mutant", r.ID)
		}
	}
	some, err := Mutants([]string{"gate/not-ready", "plan/override"})
	want := []string{
		"gate/not-ready start", "gate/not-ready late", "gate/not-ready caller", "gate/not-ready identity",
		"plan/override", "plan/override refused",
	}
	if err != nil || !slices.Equal(some, want) {
		t.Errorf("got %q, %v, want %q", some, err, want)
	}
	if _, err := Mutants([]string{"bundle/version", "plan/none"}); err == nil {
		t.Error("a rule that does not exist passes")
	}
}
