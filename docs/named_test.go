package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// scripts are where the subtests of a test are files.
var scripts = map[string]string{
	"TestReconciler":        "controller/operatorpolicy/testdata",
	"TestLoop":              "e2e/loop/testdata",
	"TestDependency/script": "e2e/dependency/testdata",
	"TestScenarios":         "e2e/scenarios",
}

// TestNamedTestsExist resolves every test, benchmark and subtest that a document names to one that go test would run.
func TestNamedTestsExist(t *testing.T) {
	exists := tests(t)
	found := 0
	for name, text := range source(t, ".md") {
		if name == "CHANGELOG.md" || name == "docs/decisions/2026-11-23-tiers-of-tests.md" { // tests of the past
			continue
		}
		for _, m := range regexp.MustCompile("`((?:Test|Benchmark|Fuzz)[A-Z0-9][^`]*)`").FindAllStringSubmatch(text,
			-1) {
			found++
			if test := strings.Join(strings.Fields(m[1]), " "); !strings.Contains(test, "<name>") && !exists(test) {
				t.Errorf("%s names %s, which is no test", name, test)
			}
		}
	}
	if found == 0 {
		t.Error("no document names a test, so nothing was compared")
	}
}

// functions are those of the tests of one directory.
type functions map[string]*ast.FuncDecl

// subtest is the function of a subtest, and where its functions are; the function is nil where the source does not name
// it.
type subtest struct {
	function ast.Node
	in       functions
}

// tests returns a function that reports whether go test runs a test or a subtest with a name, which it reads from the
// source. Subtests are files, literal names in calls of Run, keys of maps of functions, and, where a name is computed,
// texts of tables in the same function.
func tests(t *testing.T) (exists func(name string) bool) {
	t.Helper()
	return testsOf(t, func(*ast.BlockStmt) (none []ast.Stmt) { return none })
}

// testsOf is tests without some statements of each block. A function of which nothing is left is no test.
func testsOf(t *testing.T, without func(*ast.BlockStmt) []ast.Stmt) (exists func(name string) bool) {
	t.Helper()
	files := source(t, ".go", ".txtar")
	all := map[string]functions{}
	for name, text := range files {
		if !strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		in := all[path.Dir(name)]
		if in == nil {
			in = functions{}
			all[path.Dir(name)] = in
		}
		for _, declaration := range file.Decls {
			if f, ok := declaration.(*ast.FuncDecl); ok && f.Recv == nil {
				in[f.Name.Name] = f
			}
		}
	}
	return func(name string) bool {
		parts := strings.Split(name, "/")
		var reached []subtest
		for _, in := range all {
			if f := in[parts[0]]; f != nil && parts[0] != "TestMain" {
				reached = append(reached, subtest{f, in})
			}
		}
		for i, part := range parts[1:] {
			reached = slices.DeleteFunc(reached, func(s subtest) bool { return isEmpty(s.function, without) })
			if _, script := files[path.Join(scripts[path.Join(parts[:i+1]...)], part+".txtar")]; script && i+
				2 == len(parts) {
				return len(reached) > 0
			}
			var next []subtest
			for _, s := range reached {
				next = append(next, s.in.subtests(s.function, without)[part]...)
			}
			reached = next
		}
		return slices.ContainsFunc(reached, func(s subtest) bool { return !isEmpty(s.function, without) })
	}
}

// isEmpty reports whether nothing is left of a function.
func isEmpty(function ast.Node, without func(*ast.BlockStmt) []ast.Stmt) bool {
	var body *ast.BlockStmt
	switch f := function.(type) {
	case *ast.FuncDecl:
		body = f.Body
	case *ast.FuncLit:
		body = f.Body
	}
	return body != nil && len(body.List) > 0 && len(without(body)) == len(body.List)
}

// subtests returns the subtests of a function by their names, those of functions that it calls included.
func (in functions) subtests(
	function ast.Node, without func(*ast.BlockStmt) []ast.Stmt,
) map[string][]subtest {
	found := map[string][]subtest{}
	called := map[string]bool{}
	var visit func(function ast.Node)
	visit = func(function ast.Node) {
		computed := false
		texts := map[string]bool{}
		skip := map[ast.Node]bool{}
		add := func(name string, f ast.Expr) {
			s := subtest{in: in}
			switch f := f.(type) {
			case *ast.FuncLit:
				s.function, skip[f] = f, true
			case *ast.Ident:
				if declared := in[f.Name]; declared != nil {
					s.function = declared
				}
			}
			found[name] = append(found[name], s)
		}
		ast.Inspect(function, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BlockStmt:
				for _, statement := range without(n) {
					skip[statement] = true
				}
			case *ast.CallExpr:
				switch f := n.Fun.(type) {
				case *ast.SelectorExpr:
					if f.Sel.Name != "Run" || len(n.Args) != 2 {
						break
					}
					if name, ok := literal(n.Args[0]); ok {
						add(name, n.Args[1])
					} else {
						computed = true
					}
				case *ast.Ident:
					if in[f.Name] != nil && !called[f.Name] {
						called[f.Name] = true
						visit(in[f.Name])
					}
				}
			case *ast.CompositeLit:
				kind, isMap := n.Type.(*ast.MapType)
				for i, element := range n.Elts {
					pair, ok := element.(*ast.KeyValueExpr)
					switch {
					case !ok && i == 0: // the first field of a table without names of fields
						if name, ok := literal(element); ok {
							texts[name] = true
						}
					case !ok:
					case isMap:
						name, ok := literal(pair.Key)
						if _, functions := kind.Value.(*ast.FuncType); ok && functions {
							add(name, pair.Value)
						} else if ok {
							texts[name] = true
						}
					default:
						if name, ok := literal(pair.Value); ok && isName(pair.Key) {
							texts[name] = true
						}
					}
				}
			}
			return !skip[n]
		})
		if computed {
			for name := range texts {
				found[name] = append(found[name], subtest{in: in})
			}
		}
	}
	visit(function)
	return found
}

// isName reports whether a field of a table is the name of a case.
func isName(key ast.Expr) bool {
	field, ok := key.(*ast.Ident)
	return ok && field.Name == "name"
}

// literal returns the text of a literal.
func literal(e ast.Expr) (text string, ok bool) {
	l, ok := e.(*ast.BasicLit)
	if !ok || l.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(l.Value)
	return text, err == nil
}
