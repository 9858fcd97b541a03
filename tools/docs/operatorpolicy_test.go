package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// scenarioCounts are how many scenarios each group of the existing OperatorPolicy controller has.
var scenarioCounts = []int{2, 1, 4, 5, 4, 2, 3, 5, 8, 6, 3, 6, 3, 4, 1, 1, 1, 1, 5, 2, 1, 3, 2, 2, 1, 4, 1, 1, 5, 4}

// TestScenariosDocument holds docs/operatorpolicy-scenarios.md to the tests: it has each scenario once and in order,
// and a script reports that it plays what the document states it does. TestNamedTestsExist holds it to tests that
// exist.
func TestScenariosDocument(t *testing.T) {
	data, err := os.ReadFile("../../docs/operatorpolicy-scenarios.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`(?m)^\| (\d+\.\d+) \|.*$`).FindAllStringSubmatch(string(data), -1)
	row := 0
	for group, count := range scenarioCounts {
		for n := range count {
			id := fmt.Sprintf("%d.%d", group+1, n+1)
			if row >= len(rows) || rows[row][1] != id {
				t.Fatalf("row %d is not that of scenario %s", row+1, id)
			}
			if !plays(t, rows[row][0], group+1, id) {
				t.Errorf("none of the scripts of row %s has the scenario in a comment", id)
			}
			row++
		}
	}
	if row != len(rows) {
		t.Errorf("there are %d rows, want %d", len(rows), row)
	}
}

// scripts are where the subtests of a test are files.
var scripts = map[string]string{"TestReconciler": "controller/operatorpolicy/testdata", "TestLoop": "e2e/loop/testdata"}

func script(test, name string) string { return filepath.Join("../..", scripts[test], name+".txtar") }

// plays reports whether a comment in a script that a row names has a scenario, or its whole group.
func plays(t *testing.T, row string, group int, id string) bool {
	t.Helper()
	says := regexp.MustCompile(fmt.Sprintf(`(?m)^# (\d+\.\d+, )*(%s\b|%d:)`, regexp.QuoteMeta(id), group))
	for _, m := range regexp.MustCompile("`(TestReconciler|TestLoop)/([^`]+)`").FindAllStringSubmatch(row, -1) {
		text, err := os.ReadFile(script(m[1], m[2]))
		if err != nil {
			t.Errorf("row %s: %v", id, err)
			continue
		}
		if says.Match(text) {
			return true
		}
	}
	return false
}
