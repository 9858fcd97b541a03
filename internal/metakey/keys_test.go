package metakey

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const root = "../.."

// product returns the files of the product with some extensions, without tests, tools and this package.
func product(t *testing.T, extensions ...string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() && (slices.Contains([]string{"e2e", "tools", "bench", "bin", "metakey", "testdata", "docs", "manifests"}, name) ||
			len(name) > 2 && name[0] == '.') {
			return filepath.SkipDir
		}
		if !entry.IsDir() && slices.Contains(extensions, filepath.Ext(name)) && !strings.HasSuffix(name, "_test.go") {
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func names() map[string]bool {
	known := map[string]bool{}
	for _, k := range Table {
		known[k.Name] = true
	}
	return known
}

// own finds keys of Opgate in a text; JSON patches have another form of them.
var own = regexp.MustCompile(`[a-z0-9.-]*opgate\.io(?:/|~1)[a-z][a-z-]+`)

// TestKeysAreInOnePlace: product code has no key as a literal, neither to compare nor to index with. Tags of structs,
// sentences, templates and manifests have only keys of the table.
func TestKeysAreInOnePlace(t *testing.T) {
	known := names()
	known[CauseDecision], known[CausePolicy], known[CauseDigest] = true, true, true
	mentions := func(where, text string) {
		for _, key := range own.FindAllString(text, -1) {
			if key = strings.ReplaceAll(key, "~1", "/"); !known[key] {
				t.Errorf("%s has key %s, which is not in the table", where, key)
			}
		}
	}
	set, literals := token.NewFileSet(), 0
	for _, path := range product(t, ".go") {
		file, err := parser.ParseFile(set, path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		tags := map[*ast.BasicLit]bool{}
		for _, i := range file.Imports {
			tags[i.Path] = true
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Field:
				if n.Tag == nil {
					return true
				}
				tags[n.Tag] = true
				tag, _ := strconv.Unquote(n.Tag.Value)
				name, _, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ",")
				if (strings.Contains(name, "/") || strings.HasPrefix(name, "olm.")) && !known[name] {
					t.Errorf("%s decodes key %s, which is not in the table", set.Position(n.Pos()), name)
				}
			case *ast.IndexExpr:
				if literal, ok := n.Index.(*ast.BasicLit); ok && isMetadata(n.X) {
					t.Errorf("%s reads key %s: name it in package metakey", set.Position(n.Pos()), literal.Value)
				}
			case *ast.BasicLit:
				if n.Kind != token.STRING || tags[n] {
					return true
				}
				literals++
				text, _ := strconv.Unquote(n.Value)
				if known[text] || own.FindString(text) == text && text != "" {
					t.Errorf("%s has key %s: name it by package metakey", set.Position(n.Pos()), n.Value)
				}
				mentions(set.Position(n.Pos()).String(), text)
			}
			return true
		})
	}
	for _, path := range product(t, ".yaml", ".tmpl") {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		mentions(path, string(text))
	}
	if literals < 1000 {
		t.Errorf("%d literals were read", literals)
	}
}

// isMetadata reports whether an expression is the annotations or the labels of an object.
func isMetadata(x ast.Expr) bool {
	if call, ok := x.(*ast.CallExpr); ok {
		x = call.Fun
	}
	selector, ok := x.(*ast.SelectorExpr)
	return ok && slices.Contains([]string{"Annotations", "Labels", "GetAnnotations", "GetLabels"}, selector.Sel.Name)
}

// TestTableIsComplete: every key has one row, with a reason and a test.
func TestTableIsComplete(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "keys.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := os.ReadFile("table.go")
	if err != nil {
		t.Fatal(err)
	}
	for name, object := range file.Scope.Objects {
		count := strings.Count(string(rows), "\t{"+name+", ")
		if isKey := object.Kind == ast.Con && !strings.HasPrefix(name, "Cause") && name != "OwnPrefix" && name != "policyPrefix"; isKey !=
			(count == 1) || count > 1 {
			t.Errorf("%s has %d rows", name, count)
		}
	}
	for _, k := range Table {
		if k.Name == "" || k.Why == "" || k.Test == "" || k.Kept && len(k.On) == 0 {
			t.Errorf("%+v", k)
		}
	}
}

// TestKeysAreDocumented compares the table with docs/threats.md.
func TestKeysAreDocumented(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs/threats.md"))
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	want.WriteString("| Key | Read on | Who may write it | Test |\n|---|---|---|---|\n")
	for _, k := range Table {
		_, _ = fmt.Fprintf(&want, "| `%s` | %s | %s: %s | `%s` |\n", k.Name,
			cmp.Or(strings.Join(k.On, ", "), "plans, bundles, catalogs"), k.By, k.Why, k.Test)
	}
	if !strings.Contains(string(text), "\n"+want.String()+"\n") {
		t.Errorf("docs/threats.md has not this table:\n%s", want.String())
	}
}
