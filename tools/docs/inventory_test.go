package docs

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write column Test of the scenarios of other projects")

// scripts are where the subtests of a test are files, with the tests' names.
var scripts = map[string]string{
	"TestReconciler":        "controller/operatorpolicy/testdata",
	"TestLoop":              "e2e/loop/testdata",
	"TestDependency/script": "e2e/dependency/testdata",
}

// subtests are files of Go in which a line with the name of a subtest ends with its scenarios, and with the subtest that
// it is in: "// scenarios 1.1, 2.1 of operators". The test is the value.
var subtests = map[string]string{
	"e2e/loop/olm_test.go":              "TestLoopOLM",
	"e2e/loop/olm_stories_test.go":      "TestLoopOLMStories",
	"e2e/dependency/dependency_test.go": "TestDependency",
}

// scenarioID is a story (S), a scenario of the addon (A) or the propagator (P), or one of the existing controller or a
// group of these. Threats have IDs such as A7.
const scenarioID = `(?:S\d+|[AP]\d+\.\d+|\d+(?:\.\d+)?)`

var (
	// scriptComment is a comment in a script that begins with scenarios, or with the group of some.
	scriptComment = regexp.MustCompile(`(?m)^# ((?:` + scenarioID + `, )*` + scenarioID + `)(?:[:, ]|$)`)
	goComment     = regexp.MustCompile(`"([^"]+)".* // scenarios? ((?:` + scenarioID + `, )*` + scenarioID + `)(?: of (\w+))?$`)
	// inventoryRow is a row of a table of scenarios: the ID, what it is about, its tests, what is different here.
	inventoryRow = regexp.MustCompile(`(?m)^\| ([SAP]?\d*[\d.]*\d) \| ([^|]+) \| ([^|]*) \|(.*)\|$`)
)

// players returns the tests that play each scenario, by the comments in them.
func players(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	add := func(ids, test string) {
		for id := range strings.SplitSeq(ids, ", ") {
			if !slices.Contains(found[id], test) {
				found[id] = append(found[id], test)
			}
		}
	}
	for _, test := range slices.Sorted(maps.Keys(scripts)) {
		paths, err := filepath.Glob(filepath.Join("../..", scripts[test], "*.txtar"))
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s has %d scripts: %v", test, len(paths), err)
		}
		for _, path := range paths {
			for _, m := range scriptComment.FindAllStringSubmatch(read(t, path), -1) {
				add(m[1], test+"/"+strings.TrimSuffix(filepath.Base(path), ".txtar"))
			}
		}
	}
	for _, path := range slices.Sorted(maps.Keys(subtests)) {
		for line := range strings.Lines(read(t, filepath.Join("../..", path))) {
			if m := goComment.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
				add(m[2], filepath.Join(subtests[path], m[3], m[1]))
			}
		}
	}
	return found
}

// wantInventory holds a document to a list of scenarios, each of which has a row, in order, and to the tests that play
// them, or writes their names.
func wantInventory(t *testing.T, document string, want []string) {
	t.Helper()
	played, path := players(t), filepath.Join("../..", document)
	text := read(t, path)
	var have []string
	written := inventoryRow.ReplaceAllStringFunc(text, func(row string) string {
		m := inventoryRow.FindStringSubmatch(row)
		have = append(have, m[1])
		group, _, _ := strings.Cut(m[1], ".")
		tests := played[m[1]]
		if group != m[1] {
			for _, test := range played[group] { // a script of a whole group
				if !slices.Contains(tests, test) {
					tests = append(tests, test)
				}
			}
		}
		if len(tests) == 0 {
			t.Errorf("%s: no comment in a test names scenario %s", document, m[1])
		}
		return fmt.Sprintf("| %s | %s | `%s` |%s|", m[1], m[2], strings.Join(tests, "`, `"), m[4])
	})
	if !slices.Equal(have, want) {
		t.Errorf("%s has the rows\n%v, want\n%v", document, have, want)
	}
	for id := range played {
		group := id + "."
		known := slices.ContainsFunc(want, func(w string) bool { return w == id || strings.HasPrefix(w, group) })
		if !known && strings.ContainsAny(id, "SAP") == strings.Contains(document, "ordering") {
			t.Errorf("%v play scenario %s, which %s does not have", played[id], id, document)
		}
	}
	switch {
	case written == text:
	case *update && !t.Failed():
		if err := os.WriteFile(path, []byte(written), 0o600); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s names other tests than those that say that they play a scenario: run with -args -update", document)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestOperatorPolicyScenarios holds docs/operatorpolicy-scenarios.md to the tests.
func TestOperatorPolicyScenarios(t *testing.T) {
	t.Parallel()
	// How many scenarios each group of the existing OperatorPolicy controller has.
	counts := []int{2, 1, 4, 5, 4, 2, 3, 5, 8, 6, 3, 6, 3, 4, 1, 1, 1, 1, 5, 2, 1, 3, 2, 2, 1, 4, 1, 1, 5, 4}
	var want []string
	for i, count := range counts {
		want = append(want, numbered(fmt.Sprint(i+1, "."), count)...)
	}
	wantInventory(t, "docs/operatorpolicy-scenarios.md", want)
}

// TestOrderingScenarios holds docs/ordering-scenarios.md to the tests: scenarios of the addon (A) and the propagator
// (P) of the existing framework, and the user stories of the proposal (S).
func TestOrderingScenarios(t *testing.T) {
	t.Parallel()
	var want []string
	for _, c := range []struct {
		prefix string
		n      int
	}{{"S", 5}, {"A3.", 1}, {"A4.", 1}, {"A9.", 3}, {"A10.", 14}, {"A12.", 9}, {"A15.", 2}, {"A16.", 1}, {"A17.", 4},
		{"A20.", 1}, {"A22.", 1}, {"P11.", 1}, {"P13.", 2}, {"P15.", 2}} {
		want = append(want, numbered(c.prefix, c.n)...)
	}
	wantInventory(t, "docs/ordering-scenarios.md", want)
}

func numbered(prefix string, n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprint(prefix, i+1))
	}
	return ids
}
