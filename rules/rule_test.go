package rules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/opgate/opgate/rules/verdict"
)

// TestRuleConstantsSpellIDs: a rule's code is found by the ID in a refusal, so each constant spells its ID, and each
// declared rule is listed.
func TestRuleConstantsSpellIDs(t *testing.T) {
	var sources []string
	for _, pattern := range []string{"*.go", "bundle/*.go", "dependency/*.go"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		sources = append(sources, found...)
	}
	declared := 0
	for _, source := range sources {
		if strings.HasSuffix(source, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), source, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			if kind, ok := spec.Type.(*ast.SelectorExpr); !ok || kind.Sel.Name != "RuleID" {
				return true
			}
			literal, ok := spec.Values[0].(*ast.BasicLit)
			if !ok {
				t.Fatalf("%s: %s is not a literal", source, spec.Names[0].Name)
			}
			id, err := strconv.Unquote(literal.Value)
			if err != nil {
				t.Fatal(err)
			}
			declared++
			name := id
			if strings.HasPrefix(source, "bundle/") {
				name = strings.TrimPrefix(id, "bundle/") // bundle.RuleVersion
				checkFile(t, source, name)
			}
			if want := "Rule" + strings.NewReplacer("/", "", "-",
				"").Replace(name); !strings.EqualFold(spec.Names[0].Name, want) {
				t.Errorf("%s: %s is %s", source, spec.Names[0].Name, id)
			}
			return true
		})
	}
	all := slices.Concat(GateRules(), Rules())
	seen := map[verdict.RuleID]bool{}
	for _, r := range all {
		if seen[r.ID] {
			t.Errorf("%s is listed twice", r.ID)
		}
		seen[r.ID] = true
	}
	if declared != len(all) {
		t.Errorf("%d rules are declared, %d are listed", declared, len(all))
	}
}

// checkFile checks that a rule on bundles is in the file of its ID, or of its first words, but for those that one
// function judges together.
func checkFile(t *testing.T, source, id string) {
	t.Helper()
	together := map[string]string{"contents": "consent", "own-constraint": "needs", "kube-version": "needs",
		"openshift-version": "needs", "not-upgradeable": "needs"}
	file := strings.TrimSuffix(filepath.Base(source), ".go")
	name := strings.NewReplacer("/", "_", "-", "_").Replace(id)
	if !strings.HasPrefix(name, file) && together[id] != file {
		t.Errorf("%s has rule %s", source, id)
	}
}
