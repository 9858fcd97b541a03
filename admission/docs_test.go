package admission

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/opgate/opgate/admission/scenario"
	"github.com/opgate/opgate/rules"
)

// TestRulesDocument holds docs/rules.md to the code: a heading for each rule and no other, and every message
// shown there is one that a scenario gets.
func TestRulesDocument(t *testing.T) {
	data, err := os.ReadFile("../docs/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	document := string(data)
	var documented []string
	for _, m := range regexp.MustCompile(`(?m)^### (\S+)$`).FindAllStringSubmatch(document, -1) {
		documented = append(documented, m[1])
	}
	var known []string
	for _, r := range slices.Concat(rules.GateRules(), rules.Rules()) {
		known = append(known, string(r.ID))
	}
	slices.Sort(documented)
	slices.Sort(known)
	if !slices.Equal(documented, known) {
		t.Errorf("docs/rules.md has the rules\n%q\nthere are\n%q", documented, known)
	}

	scenarios, err := scenario.Load(scenarioDir, versions)
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]bool{}
	for _, s := range scenarios {
		said[s.Message] = true
		for _, w := range s.Warnings {
			said["Warning: "+w] = true
		}
	}
	blocks := regexp.MustCompile("(?s)```text\n(.*?)\n```").FindAllStringSubmatch(document, -1)
	if len(blocks) < len(rules.Rules()) {
		t.Errorf("docs/rules.md shows %d messages for %d rules", len(blocks), len(rules.Rules()))
	}
	for _, block := range blocks {
		if message := strings.TrimSpace(block[1]); !said[message] {
			t.Errorf("docs/rules.md shows a message that no scenario gets:\n%s", message)
		}
	}
}

// TestThreatsDocument holds docs/threats.md to the code: every test that it names exists, and every threat that a
// comment cites has a row.
func TestThreatsDocument(t *testing.T) {
	data, err := os.ReadFile("../docs/threats.md")
	if err != nil {
		t.Fatal(err)
	}
	document := string(data)
	tests, cited := map[string]bool{}, map[string]bool{}
	cites := regexp.MustCompile(`\(threats? ([OG][OG0-9, ]*)`)
	err = filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllSubmatch(source, -1) {
			tests[string(m[1])] = true
		}
		for _, m := range cites.FindAllSubmatch(source, -1) {
			for _, id := range strings.FieldsFunc(string(m[1]), func(r rune) bool { return r == ',' || r == ' ' }) {
				cited[id] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(document, -1) {
		if !tests[m[1]] {
			t.Errorf("docs/threats.md names %s, which is no test", m[1])
		}
	}
	for line := range strings.Lines(document) {
		heading := strings.HasPrefix(line, "|---") || strings.HasSuffix(line, "| Test |\n")
		if strings.HasPrefix(line, "|") && !heading && !strings.Contains(line, "`Test") {
			t.Errorf("docs/threats.md has a row that names no test: %s", line)
		}
	}
	if len(cited) == 0 {
		t.Error("no threat is cited anywhere, so nothing was compared")
	}
	for id := range cited {
		if !strings.Contains(document, "\n| "+id+" | ") {
			t.Errorf("threat %s is cited in the code and has no row in docs/threats.md", id)
		}
	}
}
