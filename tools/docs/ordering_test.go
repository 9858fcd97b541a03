package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// orderingCounts are how many scenarios each case of the existing framework has: of its addon (A) and its propagator
// (P), and the user stories of the proposal (S).
var orderingCounts = []struct {
	id string
	n  int
}{
	{id: "S", n: 5},
	{id: "A3", n: 1},
	{id: "A4", n: 1},
	{id: "A9", n: 3},
	{id: "A10", n: 14},
	{id: "A12", n: 9},
	{id: "A15", n: 2},
	{id: "A16", n: 1},
	{id: "A17", n: 4},
	{id: "A20", n: 1},
	{id: "A22", n: 1},
	{id: "P11", n: 1},
	{id: "P13", n: 2},
	{id: "P15", n: 2},
}

// TestDependencyScenarios holds docs/ordering-scenarios.md to the tests: it has each scenario once and in order, and a
// script reports that it plays what the document states it does. TestNamedTestsExist holds it to tests that exist.
func TestDependencyScenarios(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile("../../docs/ordering-scenarios.md")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, s := range orderingCounts {
		for n := range s.n {
			if s.id == "S" {
				want = append(want, fmt.Sprintf("S%d", n+1))
			} else {
				want = append(want, fmt.Sprintf("%s.%d", s.id, n+1))
			}
		}
	}
	var have []string
	used := map[string]bool{}
	for _, row := range regexp.MustCompile(`(?m)^\| ([SAP][\d.]+) \|.*$`).FindAllStringSubmatch(string(document), -1) {
		id := row[1]
		have = append(have, id)
		named := regexp.MustCompile("`(Test[^`]+)`").FindAllStringSubmatch(row[0], -1)
		if len(named) == 0 {
			t.Errorf("%s has no test", id)
		}
		plays, scripts := false, 0
		for _, m := range named {
			name := m[1][strings.LastIndex(m[1], "/")+1:]
			text, err := os.ReadFile(filepath.Join("../../e2e/dependency/testdata", name+".txtar"))
			if err == nil {
				used[name] = true
				scripts++
				plays = plays || regexp.MustCompile(`(?m)^# ([A-Z][\d.]+, )*`+regexp.QuoteMeta(id)+`\b[:,]`).Match(text)
			}
		}
		if scripts > 0 && !plays {
			t.Errorf("none of the scripts of %s has it in a comment", id)
		}
	}
	if !slices.Equal(have, want) {
		t.Errorf("the rows are\n%v, want\n%v", have, want)
	}
	for _, path := range scenarioScripts(t) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(path), ".txtar")
		if claims := regexp.MustCompile(`(?m)^# [SAP]\d`).Match(text); claims && !used[name] {
			t.Errorf("no row names script %s, which plays a scenario", name)
		}
	}
}

func scenarioScripts(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob("../../e2e/dependency/testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	return paths
}
