package docs

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/verdict"
)

// TestDeputies resolves each row of what OLM and controllers do for a tenant: its rules exist, or the row has the reason why there is
// none, and TestThreats finds its tests.
func TestDeputies(t *testing.T) {
	_, section, _ := strings.Cut(document(t, "threats.md"), "\n## What others do for a tenant\n")
	rows := 0
	for line := range strings.Lines(section) {
		cells := strings.Split(line, " | ")
		if len(cells) != 4 || !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| Field") {
			continue
		}
		rows++
		found := 0
		for _, m := range regexp.MustCompile("`([a-z]+/[a-z-]+)`").FindAllStringSubmatch(cells[2], -1) {
			found++
			if !slices.ContainsFunc(rules.Rules(), func(r verdict.Rule) bool { return string(r.ID) == m[1] }) {
				t.Errorf("%s is no rule: %s", m[1], line)
			}
		}
		if found == 0 && !strings.HasPrefix(cells[2], "none: ") {
			t.Errorf("neither a rule nor the reason why there is none: %s", line)
		}
		if !strings.Contains(cells[3], "`Test") {
			t.Errorf("no test: %s", line)
		}
	}
	if rows < 15 {
		t.Errorf("%d rows", rows)
	}
}
