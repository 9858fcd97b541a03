package admission

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/opgate/opgate/admission/scenario/scenariotest"
	"github.com/opgate/opgate/rules"
)

// TestRulesDocument compares docs/rules.md with the code: a heading for each rule and no other, with its
// outcomes, and every message there is one that a scenario gets.
func TestRulesDocument(t *testing.T) {
	data, err := os.ReadFile("../docs/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	document := string(data)
	var documented []string
	outcomes := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^### (\S+)\n\n\*([^*]*)\.\*`).FindAllStringSubmatch(document, -1) {
		documented = append(documented, m[1])
		outcomes[m[1]] = m[2]
	}
	var known []string
	for _, r := range slices.Concat(rules.GateRules(), rules.Rules()) {
		known = append(known, string(r.ID))
		said := outcomes[string(r.ID)]
		words := strings.Join(regexp.MustCompile(`\b(Deny|Hold|Warn)\b`).FindAllString(said, -1), ",")
		if words != string(r.Outcomes) || strings.Contains(said, "; override") != r.Override ||
			strings.Contains(said, "; backstop") != r.Backstop {
			t.Errorf("docs/rules.md has %q of %s, which is %s, override %t, backstop %t", said, r.ID, r.Outcomes, r.Override,
				r.Backstop)
		}
	}
	slices.Sort(documented)
	slices.Sort(known)
	if !slices.Equal(documented, known) {
		t.Errorf("docs/rules.md has the rules\n%q\nthere are\n%q", documented, known)
	}

	scenarios := scenariotest.Load(t, scenarioDir, versions)
	said := map[string]bool{}
	for _, s := range scenarios {
		said[s.Message] = true
		if strings.Contains(s.Backstop, "(deletion/") {
			said[strings.ReplaceAll(s.Backstop, scenariotest.UIDPlaceholder, "6f1c7a52-4b1e-4f0a-9d7c-2f8a1c0e5b11")] = true
		}
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
