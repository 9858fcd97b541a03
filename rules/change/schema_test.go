package change

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/crdify/pkg/config"
	"sigs.k8s.io/crdify/pkg/validations"
)

// TestWiderSchemas: what only accepts more breaks no object, and crdify's own answer is in the table of docs/consent.md.
func TestWiderSchemas(t *testing.T) {
	compare, err := comparators()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/consent.md")
	if err != nil {
		t.Fatal(err)
	}
	const rules = `"x-kubernetes-validations":[{"rule":"self != 'a'"},{"rule":"self != 'b'"}]`
	const wider, breaking, nothing = "`crds`", "`breakingCRDs`", "nothing"
	for _, tc := range []struct{ what, was, is, crdify, ours string }{
		{"an enum is dropped", `"enum":["x","y"]`, ``, "error", wider},
		{"an enum grows", `"enum":["x"]`, `"enum":["x","y"]`, "nothing", nothing},
		{"an enum shrinks, or is added", `"enum":["x","y"]`, `"enum":["x"]`, "error", breaking},
		{"a pattern is dropped", `"pattern":"^a"`, ``, "error", wider},
		{"a pattern is added, or another one", `"pattern":"^a"`, `"pattern":"^b"`, "error", breaking},
		{"a format is dropped", `"format":"date"`, ``, "error", wider},
		{"a format is added, or another one", ``, `"format":"date"`, "error", breaking},
		{"a rule of `x-kubernetes-validations` is dropped", rules, `"x-kubernetes-validations":[{"rule":"self != 'a'"}]`, "error", wider},
		{"all rules are dropped", rules, ``, "error", wider},
		{"a rule is added, or another one", `"x-kubernetes-validations":[{"rule":"self != 'a'"}]`, rules, "error", breaking},
		{"`nullable` is added", ``, `"nullable":true`, "error", wider},
		{"`nullable` is dropped", `"nullable":true`, ``, "error", breaking},
		{"a field is no longer required", `"required":["x"]`, ``, "nothing", nothing},
		{"a field becomes required", ``, `"required":["x"]`, "error", breaking},
		{"a limit is dropped, or is wider", `"maxLength":3`, ``, "nothing", nothing},
		{"a limit is added, or is narrower", ``, `"maxLength":3`, "error", breaking},
		{"a default is added, dropped or another one", ``, `"default":"x"`, "error", breaking},
	} {
		version := func(keywords string) *schema {
			s := &schema{}
			if err := json.Unmarshal([]byte("{"+strings.TrimSuffix(`"type":"string",`+keywords, ",")+"}"), s); err != nil {
				t.Fatal(err)
			}
			normalize(s)
			return s
		}
		own := "nothing"
		for _, r := range validations.CompareProperties(version(tc.was), version(tc.is), config.EnforcementPolicyError,
			compare...) {
			if len(r.Errors) > 0 {
				own = "error"
			}
		}
		broken, more, err := compareFields(version(tc.was), version(tc.is))
		if err != nil {
			t.Fatal(err)
		}
		ours := nothing
		switch {
		case len(broken) > 0:
			ours = breaking
		case len(more) > 0:
			ours = wider
		}
		if own != tc.crdify || ours != tc.ours {
			t.Errorf("%s: crdify %s, ours %s: %q %q", tc.what, own, ours, broken, more)
		}
		if line := "| " + tc.what + " | " + tc.crdify + " | " + tc.ours + " |\n"; !strings.Contains(string(page), line) {
			t.Errorf("docs/consent.md does not have the line %s", line)
		}
	}
	broken, more, err := compareFields(&schema{Type: "string", Pattern: "^a", Format: "date"}, &schema{Type: "string", Format: "byte"})
	if err != nil || strings.Join(broken, ";") != "the object: changed: format" ||
		strings.Join(more, ";") != "the object: accepts more: pattern" {
		t.Errorf("of two keywords one is wider: %q, %q, %v", broken, more, err)
	}
}
