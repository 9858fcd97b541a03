package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// source returns the files of the repository that have one of some extensions, by their path from its root.
func source(t *testing.T, extensions ...string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name := entry.Name(); name == "bin" || len(name) > 2 && name[0] == '.' {
				return filepath.SkipDir
			}
			return nil
		}
		if !slices.Contains(extensions, filepath.Ext(path)) {
			return nil
		}
		data, err := os.ReadFile(path)
		files[filepath.ToSlash(strings.TrimPrefix(path, ".."+string(filepath.Separator)))] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// document returns the text of a file in this folder.
func document(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestThreats compares threats.md with the code: every test that it names exists, and every threat that a comment
// cites has a row.
func TestThreats(t *testing.T) {
	threats := document(t, "threats.md")
	tests, cited := map[string]bool{}, map[string]bool{}
	cites := regexp.MustCompile(`\(threats? ([OG][OG0-9, ]*)`)
	for _, text := range source(t, ".go") {
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(text, -1) {
			tests[m[1]] = true
		}
		for _, m := range cites.FindAllStringSubmatch(text, -1) {
			for _, id := range strings.FieldsFunc(m[1], func(r rune) bool { return r == ',' || r == ' ' }) {
				cited[id] = true
			}
		}
	}
	for _, m := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(threats, -1) {
		if !tests[m[1]] {
			t.Errorf("threats.md names %s, which is no test", m[1])
		}
	}
	for line := range strings.Lines(threats) {
		heading := strings.HasPrefix(line, "|---") || strings.HasSuffix(line, "| Test |\n")
		if strings.HasPrefix(line, "|") && !heading && !strings.Contains(line, "`Test") {
			t.Errorf("threats.md has a row that names no test: %s", line)
		}
	}
	if len(cited) == 0 {
		t.Error("no threat is cited anywhere, so nothing was compared")
	}
	for id := range cited {
		if !strings.Contains(threats, "\n| "+id+" | ") {
			t.Errorf("threat %s is cited in the code and has no row in threats.md", id)
		}
	}
}

// TestRequirements compares requirements.md with the code, both ways: every requirement that is cited has a heading,
// and every heading is cited. Documents that are not in the repository are not cited at all.
func TestRequirements(t *testing.T) {
	defined, cited := map[string]bool{}, map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^### (R-[A-Z]{2}-\d+)$`).FindAllStringSubmatch(
		document(t, "requirements.md"), -1) {
		if defined[m[1]] {
			t.Errorf("requirements.md has two headings %s", m[1])
		}
		defined[m[1]] = true
	}
	id := regexp.MustCompile(`\bR-[A-Z]{2}-\d+\b`)
	elsewhere := regexp.MustCompile(`\bseed [0]|\bDESI[G]N\b|\b[W]\d+\b`)
	for path, text := range source(t, ".go", ".yaml", ".txtar", ".tpl", ".md") {
		if m := elsewhere.FindString(text); m != "" {
			t.Errorf("%s cites %q, which is not in the repository: cite a requirement, or say the reason", path, m)
		}
		if path == "docs/requirements.md" {
			continue
		}
		for _, m := range id.FindAllString(text, -1) {
			cited[m] = true
			if !defined[m] {
				t.Errorf("%s cites requirement %s, which has no heading in requirements.md", path, m)
			}
		}
	}
	for m := range defined {
		if !cited[m] {
			t.Errorf("requirement %s is cited nowhere", m)
		}
	}
	if len(defined) == 0 {
		t.Error("requirements.md has no heading, so nothing was compared")
	}
}
