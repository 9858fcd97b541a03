package workflows

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestTargets shows that workflows run targets that the Makefile has, and that CONTRIBUTING.md states which.
func TestTargets(t *testing.T) {
	targets := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^([a-z0-9-]+):`).FindAllSubmatch(files(t, "Makefile")["Makefile"], -1) {
		targets[string(m[1])] = true
	}
	rows := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z]+)` \\|.*$").FindAllSubmatch(
		files(t, "CONTRIBUTING.md")["CONTRIBUTING.md"], -1) {
		rows[string(m[1])] = string(m[0])
	}
	runs := regexp.MustCompile(`\bmake ([a-z0-9-]+)`)
	for path, data := range files(t, ".github/workflows/*.yaml") {
		var w workflow
		if err := yaml.Unmarshal(data, &w); err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(path), ".yaml")
		found := 0
		for id, j := range w.Jobs {
			for _, s := range j.Steps {
				for _, m := range runs.FindAllStringSubmatch(s.Run, -1) {
					found++
					if !targets[m[1]] {
						t.Errorf("%s, job %s: make %s: the Makefile has no such target", path, id, m[1])
					}
					if !strings.Contains(rows[name], "`make "+m[1]+"`") {
						t.Errorf("%s runs make %s, which its row under What runs where in CONTRIBUTING.md does not have", path, m[1])
					}
				}
			}
		}
		if found == 0 {
			t.Errorf("%s runs no make target", path)
		}
	}
}

// TestOptionsAreFree shows that what the help of make offers as an option, such as OLM=1, has no value in the Makefile
// that would set it for all.
func TestOptionsAreFree(t *testing.T) {
	makefile := files(t, "Makefile")["Makefile"]
	options := regexp.MustCompile(`\b([A-Z][A-Z0-9_]+)=`)
	found := map[string]bool{}
	for _, help := range regexp.MustCompile(`(?m)^[a-z0-9-]+:.*## (.*)$`).FindAllSubmatch(makefile, -1) {
		for _, m := range options.FindAllSubmatch(help[1], -1) {
			found[string(m[1])] = true
		}
	}
	if len(found) == 0 {
		t.Fatal("no target has an option")
	}
	for _, m := range regexp.MustCompile(`(?m)^([A-Z][A-Z0-9_]+) *:?=`).FindAllSubmatch(makefile, -1) {
		if found[string(m[1])] {
			t.Errorf("the Makefile sets %s, an option of a target", m[1])
		}
	}
}
