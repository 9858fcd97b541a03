package metakey

import (
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
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

// names returns the keys: the constants but for causes and prefixes.
func names(t *testing.T) map[string]bool {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "keys.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	checked, err := (&types.Config{}).Check("metakey", set, []*ast.File{file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, name := range checked.Scope().Names() {
		if c, ok := checked.Scope().Lookup(name).(*types.Const); ok && !strings.HasPrefix(name, "Cause") &&
			name != "OwnPrefix" && name != "policyPrefix" {
			known[constant.StringVal(c.Val())] = true
		}
	}
	return known
}

// own finds keys of Opgate in a text; JSON patches have another form of them.
var own = regexp.MustCompile(`[a-z0-9.-]*opgate\.io(?:/|~1)[a-z][a-z-]+`)

// TestKeysAreInOnePlace: product code has no key as a literal, neither to compare nor to index with. Tags of structs,
// sentences, templates and manifests have only keys of the table.
func TestKeysAreInOnePlace(t *testing.T) {
	known := names(t)
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
				name = strings.TrimPrefix(name, "f:") // who manages the key
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

// TestTable: docs/threats.md has one row for each key, with who may write it and why that is harmless.
func TestTable(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs/threats.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "\n| Key | Read on | Who may write it | Test |\n|---|---|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	known, rows := names(t), map[string]string{}
	for _, row := range strings.Split(table, "\n") {
		m := regexp.MustCompile("^\\| `([^`]+)` \\| ([a-z, ]+) \\| (Opgate alone|OLM alone|with a right|anyone): .+ \\| `Test.+` \\|$").FindStringSubmatch(row)
		if m == nil {
			t.Errorf("%q is no row", row)
			continue
		}
		if !known[m[1]] || rows[m[1]] != "" {
			t.Errorf("%s has two rows, or is not read", m[1])
		}
		rows[m[1]] = m[2]
		// What Opgate alone writes into, by ValidatingAdmissionPolicy opgate-evidence or by its rights.
		if own := m[2] == "configmaps" || m[2] == "leases"; own && strings.HasPrefix(m[1], OwnPrefix) && m[3] != "Opgate alone" {
			t.Errorf("%s of %s: %s may write it", m[1], m[2], m[3])
		}
	}
	for key := range known {
		if rows[key] == "" {
			t.Errorf("%s has no row", key)
		}
	}
	for _, key := range Kept() {
		if on := rows[key]; on == "" || on == "plans, bundles, catalogs" {
			t.Errorf("static policies keep %s, which is read on %q", key, on)
		}
	}
	if !found {
		t.Error("docs/threats.md has no table of keys")
	}
}
