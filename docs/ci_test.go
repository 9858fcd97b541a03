package docs

import (
	"go/ast"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// shownByTests are the documents whose rows name the tests that show them.
var shownByTests = []string{"threats.md", "requirements.md", "operatorpolicy-scenarios.md", "ordering-scenarios.md"}

var (
	namedTest = regexp.MustCompile("`(Test[A-Z0-9][^`]*)`")
	// weeklyTest matches a line of tools/suite/weekly.txt, which names a test that only make test-long runs.
	weeklyTest = regexp.MustCompile(`(?m)^[\w/]+ (Test[^|]*?) *\|`)
	// longFlags are those without which CI runs tests.
	longFlags = []string{"Long", "long", "all"}
)

// TestRowsNameTestsOfCI: every row that names tests names one that CI runs, by `make test` or `make test-install`.
func TestRowsNameTestsOfCI(t *testing.T) {
	inCI := testsOfCI(t, strings.Join(lines(t, "../tools/suite/weekly.txt"), "\n"))
	for _, name := range shownByTests {
		found := 0
		for line := range strings.Lines(document(t, name)) {
			row, problem := rowInCI(line, inCI)
			if row {
				found++
			}
			if problem != "" {
				t.Errorf("docs/%s: %s", name, problem)
			}
		}
		if found == 0 {
			t.Errorf("no row of docs/%s names a test, so nothing was compared", name)
		}
	}
}

// rowInCI reports whether a line is a row that names tests, and what is wrong if CI runs none of them.
func rowInCI(line string, inCI func(name string) bool) (row bool, problem string) {
	var names []string
	for _, m := range namedTest.FindAllStringSubmatch(line, -1) {
		names = append(names, m[1])
	}
	if !strings.HasPrefix(line, "| ") || len(names) == 0 {
		return false, ""
	}
	if slices.ContainsFunc(names, inCI) {
		return true, ""
	}
	id, _, _ := strings.Cut(line[2:], " | ")
	return true, "row " + id + " is shown by " + strings.Join(names, ", ") +
		" alone, which neither make test nor make test-install runs: name a test that CI runs as well"
}

// testsOfCI returns a function that reports whether CI runs a test or a subtest with a name: the list of weekly tests does
// not have it, and it needs no flag of make test-long.
func testsOfCI(t *testing.T, list string) func(name string) bool {
	t.Helper()
	exists := testsOf(t, onlyLong)
	var weekly []string
	for _, m := range weeklyTest.FindAllStringSubmatch(list, -1) {
		weekly = append(weekly, m[1])
	}
	return func(name string) bool {
		return exists(name) && !slices.ContainsFunc(weekly, func(w string) bool { return covers(w, name) })
	}
}

// covers reports whether a name of a test, or of a subtest, is that of another one, or of one that it belongs to.
func covers(test, name string) bool {
	name = strings.ReplaceAll(name, " ", "_")
	return name == test || strings.HasPrefix(name, test+"/")
}

// onlyLong returns the statements of a block that run only with a flag of make test-long: "if *long" without else, what
// follows "if !*long" that ends with a return, and the whole block if that ends with t.Skip.
func onlyLong(block *ast.BlockStmt) (found []ast.Stmt) {
	for i, statement := range block.List {
		condition, ok := statement.(*ast.IfStmt)
		if !ok {
			continue
		}
		if isLong(condition.Cond) && condition.Else == nil {
			found = append(found, condition)
		}
		if not, ok := condition.Cond.(*ast.UnaryExpr); ok && isLong(not.X) && len(condition.Body.List) > 0 {
			switch last := condition.Body.List[len(condition.Body.List)-1].(type) {
			case *ast.ReturnStmt:
				return append(found, block.List[i+1:]...)
			case *ast.ExprStmt:
				if call, ok := last.X.(*ast.CallExpr); ok && strings.HasPrefix(nameOf(call.Fun), "Skip") {
					return block.List
				}
			}
		}
	}
	return found
}

// isLong reports whether an expression is a flag of make test-long.
func isLong(e ast.Expr) bool {
	pointer, ok := e.(*ast.StarExpr)
	return ok && slices.Contains(longFlags, nameOf(pointer.X))
}

// nameOf is the name of a variable or a function, without its package.
func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}
