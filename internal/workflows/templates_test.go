package workflows

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// form is a form for issues. GitHub's reference: "Syntax for issue forms" and "Syntax for GitHub's form schema".
type form struct {
	Name        string    `json:"name"`
	Description string    `json:"description"`
	Labels      []string  `json:"labels"`
	Body        []element `json:"body"`
}

// element is a text or a field of a form.
type element struct {
	Type        string          `json:"type"`
	ID          string          `json:"id"`
	Attributes  attributes      `json:"attributes"`
	Validations map[string]bool `json:"validations"`
}

// attributes are those of all types together.
type attributes struct {
	Label       string `json:"label"`
	Description string `json:"description"`
	Placeholder string `json:"placeholder"`
	Value       string `json:"value"`
	Render      string `json:"render"`
	Options     []any  `json:"options"`
}

// formProblems returns why GitHub would not show a form.
func formProblems(data []byte) (all []string) {
	var f form
	if err := yaml.UnmarshalStrict(data, &f); err != nil {
		return []string{err.Error()}
	}
	if f.Name == "" || f.Description == "" || len(f.Body) == 0 {
		all = append(all, "want name, description and body")
	}
	seen := map[string]bool{}
	for _, e := range f.Body {
		options := e.Type == "dropdown" || e.Type == "checkboxes"
		switch {
		case !slices.Contains([]string{"markdown", "textarea", "input", "dropdown", "checkboxes"}, e.Type):
			all = append(all, e.Type+" is no type")
		case e.Type == "markdown" && e.Attributes.Value == "":
			all = append(all, "markdown: want a value")
		case e.Type != "markdown" && (e.ID == "" || e.Attributes.Label == "" || seen[e.ID]):
			all = append(all, e.Type+" "+e.ID+": want a label, and an id of its own")
		case options != (len(e.Attributes.Options) > 0):
			all = append(all, e.Type+" "+e.ID+": want options for dropdown and checkboxes, and nowhere else")
		case e.Type != "textarea" && e.Attributes.Render != "":
			all = append(all, e.Type+" "+e.ID+": only a textarea renders")
		}
		seen[e.ID] = true
	}
	return all
}

// TestForms holds the forms for issues to the shape that GitHub documents; it shows no form that has another.
func TestForms(t *testing.T) {
	for name, data := range files(t, ".github/ISSUE_TEMPLATE/*.yml") {
		if filepath.Base(name) == "config.yml" {
			continue
		}
		for _, problem := range formProblems(data) {
			t.Errorf("%s: %s", name, problem)
		}
	}
	for name, text := range map[string]string{
		"a key that GitHub does not know":  "{name: a, description: b, title_: c, body: [{type: input, id: a, attributes: {label: a}}]}",
		"a type that GitHub does not know": "{name: a, description: b, body: [{type: text, id: a, attributes: {label: a}}]}",
		"one id twice":                     "{name: a, description: b, body: [{type: input, id: a, attributes: {label: a}}, {type: input, id: a, attributes: {label: b}}]}",
		"a dropdown without options":       "{name: a, description: b, body: [{type: dropdown, id: a, attributes: {label: a}}]}",
		"no fields":                        "{name: a, description: b}",
	} {
		if got := formProblems([]byte(text)); len(got) != 1 {
			t.Errorf("%s: problems are %q, want one", name, got)
		}
	}
}

// TestChooser shows that who reports a vulnerability is led away from public issues.
func TestChooser(t *testing.T) {
	var chooser struct {
		BlankIssuesEnabled *bool `json:"blank_issues_enabled"`
		ContactLinks       []struct {
			Name  string `json:"name"`
			URL   string `json:"url"`
			About string `json:"about"`
		} `json:"contact_links"`
	}
	if err := yaml.UnmarshalStrict(files(t, ".github/ISSUE_TEMPLATE/config.yml")[".github/ISSUE_TEMPLATE/config.yml"],
		&chooser); err != nil {
		t.Fatal(err)
	}
	if chooser.BlankIssuesEnabled == nil || *chooser.BlankIssuesEnabled {
		t.Error("blank issues are enabled, which have no way to SECURITY.md")
	}
	private := false
	for _, link := range chooser.ContactLinks {
		private = private || link.URL == "https://github.com/opgate/opgate/security/policy" &&
			strings.Contains(link.About, "SECURITY.md")
		if link.Name == "" || link.About == "" || !strings.HasPrefix(link.URL, "https://") {
			t.Errorf("contact link %+v: want name, about and an https URL", link)
		}
	}
	if !private {
		t.Error("no contact link leads to SECURITY.md")
	}
}

// TestOwners holds OWNERS to Kubernetes' form.
func TestOwners(t *testing.T) {
	var owners struct {
		Approvers []string `json:"approvers"`
		Reviewers []string `json:"reviewers"`
	}
	if err := yaml.UnmarshalStrict(files(t, "OWNERS")["OWNERS"], &owners); err != nil {
		t.Fatal(err)
	}
	if len(owners.Approvers) == 0 || len(owners.Reviewers) == 0 {
		t.Errorf("OWNERS is %+v, want approvers and reviewers", owners)
	}
}

// TestLinks follows the links into the repository from what GitHub shows of it.
func TestLinks(t *testing.T) {
	relative := regexp.MustCompile(`\]\(([^)#:\s]+)(?:#[^)]*)?\)`)
	absolute := regexp.MustCompile(`https://github\.com/opgate/opgate/(?:blob|tree)/main/([\w./-]+)`)
	followed := 0
	for _, pattern := range []string{"*.md", ".github/*.md", ".github/ISSUE_TEMPLATE/*.yml"} {
		for name, data := range files(t, pattern) {
			var targets []string
			for _, m := range relative.FindAllStringSubmatch(string(data), -1) {
				targets = append(targets, filepath.Join(filepath.Dir(name), m[1]))
			}
			for _, m := range absolute.FindAllStringSubmatch(string(data), -1) {
				targets = append(targets, m[1])
			}
			for _, target := range targets {
				followed++
				if _, err := os.Stat(filepath.Join(root, target)); err != nil {
					t.Errorf("%s has a link to %s: %v", name, target, err)
				}
			}
		}
	}
	if followed == 0 {
		t.Error("no link was followed")
	}
}

// TestRenovate shows that Renovate sees every module file, those beside go.mod included, and that its rules name files
// that exist.
func TestRenovate(t *testing.T) {
	var config struct {
		GoMod struct {
			ManagerFilePatterns []string `json:"managerFilePatterns"`
		} `json:"gomod"`
		PackageRules []struct {
			MatchFileNames []string `json:"matchFileNames"`
		} `json:"packageRules"`
	}
	if err := json.Unmarshal(files(t, "renovate.json")["renovate.json"], &config); err != nil {
		t.Fatal(err)
	}
	patterns := []*regexp.Regexp{regexp.MustCompile(`(^|/)go\.mod$`)} // Renovate's own, to which the others are added
	for _, pattern := range config.GoMod.ManagerFilePatterns {
		patterns = append(patterns, regexp.MustCompile(strings.Trim(pattern, "/")))
	}
	for _, glob := range []string{"*.mod", "*/*.mod", "e2e/tools/*/*.mod"} {
		for name := range files(t, glob) {
			if !slices.ContainsFunc(patterns, func(p *regexp.Regexp) bool { return p.MatchString(name) }) {
				t.Errorf("Renovate does not see %s: no pattern of managerFilePatterns matches it", name)
			}
		}
	}
	for _, rule := range config.PackageRules {
		for _, glob := range rule.MatchFileNames {
			files(t, strings.TrimPrefix(glob, "**/"))
		}
	}
}
