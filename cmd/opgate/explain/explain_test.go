package explain

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/opgate/opgate/admission/scenario"
	"github.com/opgate/opgate/cmd/opgate/inspect"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/verdict"
)

const root = "../../../"

var outcomeWord = regexp.MustCompile(`\b(Deny|Hold|Warn)\b`)

// TestEveryRuleIsExplained: every rule has a meaning and a remedy, those of policies an example and a sample that
// exists.
func TestEveryRuleIsExplained(t *testing.T) {
	list := all()
	if want := len(rules.GateRules()) + len(rules.Rules()); len(list) != want {
		t.Errorf("%d rules are explained, there are %d", len(list), want)
	}
	for _, r := range list {
		if r.group == "" || r.meaning == "" || r.remedy == "" || strings.Contains(r.meaning+r.remedy, "What to do") {
			t.Errorf("%s: group %q, meaning %q, remedy %q", r.ID, r.group, r.meaning, r.remedy)
		}
		var outcomes verdict.Outcomes
		for _, word := range outcomeWord.FindAllString(r.outcome, -1) {
			outcomes = append(outcomes, verdict.Outcome(word))
		}
		if !slices.Equal(outcomes, r.Outcomes) {
			t.Errorf("%s: the outcome is %q, want it to name %s", r.ID, r.outcome, r.Outcomes)
		}
		if strings.Contains(r.tags, "override") != r.Override || strings.Contains(r.tags, "backstop") != r.Backstop {
			t.Errorf("%s: the outcome ends in %q, but override sets it aside: %t, the backstop holds it: %t", r.ID,
				r.tags, r.Override, r.Backstop)
		}
		for _, markdown := range []string{r.meaning, r.remedy, r.outcome} {
			if strings.Contains(plain(markdown), "](") {
				t.Errorf("%s: the text has a link: %s", r.ID, plain(markdown))
			}
		}
		if r.kind() == "gate/" {
			continue
		}
		if !strings.Contains(r.example, "("+string(r.ID)+")") {
			t.Errorf("%s: the example %q does not name the rule", r.ID, r.example)
		}
		if _, err := os.Stat(root + r.sample); r.sample == "" || err != nil {
			t.Errorf("%s: sample %q: %v", r.ID, r.sample, err)
		}
	}
}

// TestRefusalsOfScenarios: every refusal in the scenarios, as the API server passes it on, names its rules.
func TestRefusalsOfScenarios(t *testing.T) {
	scenarios, err := scenario.Load(root+"e2e/scenarios", scenario.Versions{Kubernetes: "1.36.2", OpenShift: "4.19.3"})
	if err != nil {
		t.Fatal(err)
	}
	list, refusals := all(), 0
	for _, s := range scenarios {
		if s.Message == "" {
			continue
		}
		refusals++
		found, err := mentioned(list,
			`Error from server (Forbidden): admission webhook "x.opgate.io" denied the request: `+s.Message+"\n")
		if err != nil {
			t.Errorf("%s: %v", s.Name, err)
		}
		for _, id := range s.Rules {
			if strings.Contains(s.Message, "("+string(id)+")") &&
				!slices.ContainsFunc(found, func(r rule) bool { return r.ID == id }) {
				t.Errorf("%s: does not explain %s", s.Name, id)
			}
		}
	}
	if refusals < 100 {
		t.Errorf("%d refusals in %d scenarios, want more", refusals, len(scenarios))
	}
}

// TestRulesInScripts: every rule that any script of the repository expects in a message is explained.
func TestRulesInScripts(t *testing.T) {
	list, scripts, named := all(), 0, 0
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".txtar" ||
			strings.Contains(filepath.ToSlash(path), "cmd/opgate/testdata/") {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		scripts++
		for _, id := range inspect.Mentions(string(data)) {
			isKind := slices.ContainsFunc(list, func(r rule) bool { return r.kind() == kindOf(id) })
			if found, err := mentioned(list, "("+id+")"); isKind && (err != nil || string(found[0].ID) != id) {
				t.Errorf("%s: %s is not explained: %v", path, id, err)
			}
			named++
		}
		return nil
	})
	if err != nil || scripts < 300 || named < 250 {
		t.Errorf("%d rules in %d scripts: %v", named, scripts, err)
	}
}
