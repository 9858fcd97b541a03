// Package vocabulary rejects phrases that a reader who knows Kubernetes, controller-runtime and OLM would not expect: in comments of Go
// files, help of flags and metrics, log messages, documents, YAML and scenarios. `make lint` runs it.
package vocabulary

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const root = "../.."

// phrases are rejected, with what to write instead.
var phrases = []struct {
	phrase  *regexp.Regexp
	instead string
}{
	{words(`tells? whether`), "reports whether"},
	{words(`gives|gave`), "returns, sets, provides"},
	{words(`nobody|somebody`), "name the user, client or component, or use the passive"},
	{words(`(is|are|was|were|be|been|being) told`), "is notified, receives, learns"},
	{words(`ha(s|ve|d) (it|them|OLM|Opgate|Kubernetes|the \w+) (do|make|write|read|try|look|plan|install|run|start|answer|wait)`), "makes it do, causes it to do"},
	{words(`mend(s|ed|ing)?`), "fix, repair"},
	{words(`a moment ago`), "just now, before"},
	{words(`be it`), "whether"},
	{words(`such as are`), "those that are"},
	{words(`(be|being|get|gets) rid of`), "remove"},
	{words(`now and then`), "periodically"},
	{words(`what is there`), "what exists"},
	{words(`upkeep`), "maintenance, the controller's name"},
	{words(`goes round`), "repeats"},
	{words(`lives on|dies of`), "depends on, fails because of"},
}

func words(pattern string) *regexp.Regexp { return regexp.MustCompile(`(?i)\b(` + pattern + `)\b`) }

// records are left as they were written.
var records = []string{"docs/decisions/", "internal/vocabulary/"}

// passage is text that is checked, and where it begins.
type passage struct {
	line int
	text string
}

func TestVocabulary(t *testing.T) {
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := filepath.ToSlash(strings.TrimPrefix(path, root+string(filepath.Separator)))
		switch {
		case entry.IsDir() && (entry.Name() == "bin" || entry.Name() == "testdata" || len(entry.Name()) > 2 && entry.Name()[0] == '.'):
			return filepath.SkipDir
		case entry.IsDir() || under(records, name):
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		passages, err := read(name, data)
		if err != nil {
			return err
		}
		for _, p := range passages {
			check(t, name, p)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// check reports every rejected phrase in a passage.
func check(t *testing.T, name string, p passage) {
	t.Helper()
	for i, line := range strings.Split(p.text, "\n") {
		for _, one := range phrases {
			found := one.phrase.FindString(line)
			if found == "" {
				continue
			}
			t.Errorf("%s:%d: %q: write %s: %s", name, p.line+i, found, one.instead, strings.TrimSpace(line))
		}
	}
}

// under reports whether a file is in one of the folders of a list.
func under(list []string, name string) bool {
	return slices.ContainsFunc(list, func(folder string) bool { return strings.HasPrefix(name, folder) })
}

// read returns what is checked of a file.
func read(name string, data []byte) ([]passage, error) {
	text := string(data)
	switch {
	case strings.HasSuffix(name, ".go"):
		return readGo(name, data)
	case strings.HasSuffix(name, ".md"):
		return readMarkdown(text), nil
	case strings.HasSuffix(name, ".txtar"):
		return readScenario(text), nil
	case slices.Contains([]string{".yaml", ".yml", ".tpl"}, filepath.Ext(name)), filepath.Base(name) == "Makefile", filepath.Base(name) == "NOTES.txt":
		return []passage{{line: 1, text: text}}, nil
	}
	return nil, nil
}

// readGo returns the comments, the help of flags and metrics, and the log messages.
func readGo(name string, data []byte) (all []passage, err error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, data, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	for _, group := range file.Comments {
		for _, comment := range group.List {
			all = append(all, passage{set.Position(comment.Pos()).Line, comment.Text})
		}
	}
	literals := func(expressions ...ast.Expr) {
		for _, e := range expressions {
			ast.Inspect(e, func(n ast.Node) bool {
				if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
					if text, err := strconv.Unquote(literal.Value); err == nil {
						all = append(all, passage{set.Position(literal.Pos()).Line, text})
					}
				}
				return true
			})
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.KeyValueExpr:
			if key, ok := n.Key.(*ast.Ident); ok && (key.Name == "Help" || key.Name == "Short" || key.Name == "Long") {
				literals(n.Value)
			}
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.SelectorExpr); ok && (isFlag(f) || isLog(f)) {
				literals(n.Args...)
			}
		}
		return true
	})
	return all, nil
}

// isFlag reports whether a function defines a flag, such as flags.StringVar.
func isFlag(f *ast.SelectorExpr) bool {
	on, ok := f.X.(*ast.Ident)
	return ok && strings.HasSuffix(strings.ToLower(on.Name), "flags") && strings.Contains(f.Sel.Name, "Var")
}

// isLog reports whether a function writes to a log, such as c.log.Info.
func isLog(f *ast.SelectorExpr) bool {
	if f.Sel.Name != "Info" && f.Sel.Name != "Error" {
		return false
	}
	switch on := f.X.(type) {
	case *ast.Ident:
		return strings.EqualFold(on.Name, "log")
	case *ast.SelectorExpr:
		return strings.EqualFold(on.Sel.Name, "log")
	case *ast.CallExpr: // log.V(1)
		v, ok := on.Fun.(*ast.SelectorExpr)
		return ok && v.Sel.Name == "V"
	}
	return false
}

// readMarkdown returns the text without blocks of messages, which are API.
func readMarkdown(text string) []passage {
	message := false
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		switch {
		case strings.HasPrefix(line, "```text"), strings.HasPrefix(line, "```console"):
			message = true
		case strings.HasPrefix(line, "```"):
			message = false
		case message:
			lines[i] = ""
		}
	}
	return []passage{{1, strings.Join(lines, "\n")}}
}

// readScenario returns the comment before the first file, of a script the lines that are comments.
func readScenario(text string) []passage {
	lines := strings.Split(text, "\n")
	head := true
	for i, line := range lines {
		head = head && !strings.HasPrefix(line, "-- ")
		if !head && !strings.HasPrefix(line, "#") {
			lines[i] = ""
		}
	}
	return []passage{{1, strings.Join(lines, "\n")}}
}

// TestRejected shows that a phrase is found wherever it is checked, and nowhere else.
func TestRejected(t *testing.T) {
	for name, test := range map[string]struct {
		file, text string
		want       int // the line of the phrase, 0 for none
	}{
		"comment":             {file: "a.go", text: "package a\n\n// f tells whether it is so.\nfunc f() {}\n", want: 3},
		"help of a metric":    {file: "a.go", text: "package a\n\nvar v = opts{\n\tHelp: \"Gives the number.\",\n}\n", want: 4},
		"help of a flag":      {file: "a.go", text: "package a\n\nfunc f() {\n\tflags.StringVar(&v, \"x\", \"\", \"what nobody needs\")\n}\n", want: 4},
		"log message":         {file: "a.go", text: "package a\n\nfunc f() {\n\tc.log.V(1).Info(\"nobody is there\")\n}\n", want: 4},
		"refusal":             {file: "a.go", text: "package a\n\nvar s = \"the user is told\"\n"},
		"document":            {file: "a.md", text: "# A\n\nOne gives\n", want: 3},
		"message in document": {file: "a.md", text: "```text\nhe is told\n```\n"},
		"after a message":     {file: "a.md", text: "```text\nhe is told\n```\nhe is told\n", want: 4},
		"YAML":                {file: "a.yaml", text: "a: b # a moment ago\n", want: 1},
		"scenario":            {file: "a.txtar", text: "Nobody asks.\n-- a --\nnobody\n", want: 1},
	} {
		passages, err := read(test.file, []byte(test.text))
		if err != nil {
			t.Fatal(err)
		}
		got := 0
		for _, p := range passages {
			for i, line := range strings.Split(p.text, "\n") {
				if slices.ContainsFunc(phrases, func(one struct {
					phrase  *regexp.Regexp
					instead string
				}) bool {
					return one.phrase.MatchString(line)
				}) {
					got = p.line + i
				}
			}
		}
		if got != test.want {
			t.Errorf("%s: found in line %d, want %d", name, got, test.want)
		}
	}
}
