package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
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

// e2e matches files of tests and tools that are not named like tests.
var e2e = regexp.MustCompile(`^(e2e|tools|bench)/`)

// TestThreats compares threats.md with the tests: every test that it names exists, and every row names one. Comments of
// the product have no IDs.
func TestThreats(t *testing.T) {
	threats := document(t, "threats.md")
	tests := map[string]bool{}
	for name, text := range source(t, ".go") {
		cited := regexp.MustCompile(`(?m)//.*\b((threats?|attacks?) [A-Za-z]\d+|R-[A-Z]{2}-\d+).*$`).FindString(text)
		if product := !strings.HasSuffix(name, "_test.go") && !e2e.MatchString(name); product && cited != "" {
			t.Errorf("%s cites an ID, where the page of the ID names the function: %s", name, cited)
		}
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(text, -1) {
			tests[m[1]] = true
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
}

// namedCode matches what a document names of the code: the folder of a package, and a name that it declares.
var namedCode = regexp.MustCompile("`(?:[a-z0-9]+/)*[a-z0-9]+\\.\\w+(?:\\.\\w+)?`")

// declarations returns the functions, methods, types, variables and constants of the product, by folder.
func declarations(t *testing.T) map[string]map[string]bool {
	t.Helper()
	packages := map[string]map[string]bool{}
	for file, text := range source(t, ".go") {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		declared := packages[path.Dir(file)]
		if declared == nil {
			declared = map[string]bool{}
			packages[path.Dir(file)] = declared
		}
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				declared[qualified(f)] = true
				continue
			}
			for _, s := range d.(*ast.GenDecl).Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					declared[s.Name.Name] = true
				case *ast.ValueSpec:
					for _, n := range s.Names {
						declared[n.Name] = true
					}
				}
			}
		}
	}
	return packages
}

// qualified is the name of a function, after its receiver's type if it has one.
func qualified(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	of := f.Recv.List[0].Type
	for {
		switch t := of.(type) {
		case *ast.StarExpr:
			of = t.X
		case *ast.IndexExpr:
			of = t.X
		case *ast.Ident:
			return t.Name + "." + f.Name.Name
		default:
			return f.Name.Name
		}
	}
}

// TestRequirements compares requirements.md with the code, both ways: every requirement that is cited has a row,
// and every row is cited or names a declaration that exists. Documents that are not in the repository are not cited at all.
func TestRequirements(t *testing.T) {
	defined, cited := map[string]bool{}, map[string]bool{}
	text := document(t, "requirements.md")
	row := regexp.MustCompile(`(?m)^\| (R-[A-Z]{2}-\d+) \| (.*) \|$`)
	for _, m := range row.FindAllStringSubmatch(text, -1) {
		name, body := m[1], m[2]
		if defined[name] {
			t.Errorf("requirements.md has two rows %s", name)
		}
		defined[name], cited[name] = true, namedCode.MatchString(body)
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
				t.Errorf("%s cites requirement %s, which has no row in requirements.md", path, m)
			}
		}
	}
	for m := range defined {
		if !cited[m] {
			t.Errorf("requirement %s is cited nowhere", m)
		}
	}
	if len(defined) == 0 {
		t.Error("requirements.md has no row, so nothing was compared")
	}
}
