// Package vocabulary rejects phrases that a reader who knows Kubernetes, controller-runtime and OLM would not expect:
// in comments of Go files, help of flags and metrics, log messages, documents, YAML and scenarios. `make lint` runs it.
package vocabulary

import (
	_ "embed"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const root = "../.."

var (
	update      = flag.Bool("update", false, "list what is found in allowed.txt")
	allowedUses = strings.Split(allowed, "\n")
)

// entry is a line of words.txt.
type entry struct {
	where   string
	pattern *regexp.Regexp
	instead string
}

//go:embed words.txt
var words string

// allowed has the uses that are still to be replaced: a file, and after a colon what is found in it.
//
//go:embed allowed.txt
var allowed string

// parse reads words.txt, in which \| is part of a pattern.
func parse(t *testing.T) (entries []entry) {
	t.Helper()
	for line := range strings.Lines(words) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		fields := strings.Split(strings.ReplaceAll(line, `\|`, "\x00"), " | ")
		if len(fields) != 3 {
			t.Fatalf("words.txt: %q has no three parts", line)
		}
		pattern := `\b(` + strings.ReplaceAll(fields[1], "\x00", "|") + `)\b`
		if fields[0] == name || fields[0] == function {
			pattern = `^(` + strings.ReplaceAll(fields[1], "\x00", "|") + `)$`
		}
		entries = append(entries, entry{fields[0], regexp.MustCompile(`(?i)` + pattern), fields[2]})
	}
	return entries
}

var (
	// records are left as they were written.
	records = []string{"docs/decisions/", "internal/vocabulary/"}
	// described has the descriptions of fields, which are API.
	described = []string{"api/"}
)

// What a passage is, as words.txt calls it.
const (
	text    = "text"
	comment = "comment"
	message = "message"
	name    = "name"
	// function is a name of a function.
	function = "function"
)

// passage is text that is checked, and where it begins.
type passage struct {
	where string
	line  int
	text  string
}

// rejects reports whether an entry is about a passage.
func (e *entry) rejects(p *passage) bool {
	return e.where == p.where || e.where == text && p.where == comment || e.where == name && p.where == function
}

func TestVocabulary(t *testing.T) {
	entries := parse(t)
	uses := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		file := filepath.ToSlash(strings.TrimPrefix(path, root+string(filepath.Separator)))
		switch {
		case entry.IsDir() && (entry.Name() == "bin" || entry.Name() == "testdata" || len(entry.Name()) > 2 &&
			entry.Name()[0] == '.'):
			return filepath.SkipDir
		case entry.IsDir() || under(records, file):
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		passages, err := read(file, data)
		if err != nil {
			return err
		}
		for i := range passages {
			check(t, entries, file, &passages[i], uses)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		lines := slices.Sorted(maps.Keys(uses))
		if err := os.WriteFile("allowed.txt", []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	for line := range strings.Lines(allowed) {
		if line = strings.TrimSpace(line); line != "" && !uses[line] {
			t.Errorf("allowed.txt: %s: it is not used any more", line)
		}
	}
}

// check reports every rejected phrase in a passage that allowed.txt does not list, and adds to uses what it finds.
func check(t *testing.T, entries []entry, file string, p *passage, uses map[string]bool) {
	t.Helper()
	for i, line := range strings.Split(p.text, "\n") {
		for _, e := range entries {
			found := e.pattern.FindString(line)
			if found == "" || !e.rejects(p) || e.where == comment && under(described, file) {
				continue
			}
			use := file + ": " + strings.ToLower(found)
			uses[use] = true
			if !*update && !slices.Contains(allowedUses, use) {
				t.Errorf("%s:%d: %s %q: write %s: %s", file, p.line+i, p.where, found, e.instead,
					strings.TrimSpace(line))
			}
		}
	}
}

// under reports whether a file is in one of the folders of a list.
func under(list []string, name string) bool {
	return slices.ContainsFunc(list, func(folder string) bool { return strings.HasPrefix(name, folder) })
}

// read returns what is checked of a file.
func read(file string, data []byte) ([]passage, error) {
	switch {
	case strings.HasSuffix(file, ".go"):
		return readGo(file, data)
	case strings.HasSuffix(file, ".md"):
		return readMarkdown(string(data)), nil
	case strings.HasSuffix(file, ".txtar"):
		return readScenario(string(data)), nil
	case slices.Contains([]string{".yaml", ".yml", ".tpl"}, filepath.Ext(file)),
		filepath.Base(file) == "Makefile", filepath.Base(file) == "NOTES.txt":
		return []passage{{text, 1, string(data)}}, nil
	}
	return nil, nil
}

// readGo returns the comments, the strings and the names that a file declares. Of tests and tools, only those strings
// that are help or log messages.
func readGo(path string, data []byte) (all []passage, err error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, data, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	add := func(where string, at token.Pos, text string) {
		all = append(all, passage{where, set.Position(at).Line, text})
	}
	for _, group := range file.Comments {
		for _, c := range group.List {
			add(comment, c.Pos(), c.Text)
		}
	}
	product := !strings.HasSuffix(path, "_test.go") && !under([]string{"e2e/", "tools/", "bench/"}, path)
	literals := func(where string, n ast.Node) {
		ast.Inspect(n, func(n ast.Node) bool {
			if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				if text, err := strconv.Unquote(literal.Value); err == nil {
					add(where, literal.Pos(), text)
				}
			}
			return true
		})
	}
	if product {
		literals(message, file)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		for _, id := range declared(n) {
			add(name, id.Pos(), id.Name)
		}
		switch n := n.(type) {
		case *ast.FuncDecl:
			add(function, n.Name.Pos(), n.Name.Name)
		case *ast.KeyValueExpr:
			if key, ok := n.Key.(*ast.Ident); ok && (key.Name == "Help" || key.Name == "Short" || key.Name == "Long") {
				literals(text, n.Value)
			}
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.SelectorExpr); ok && (isFlag(f) || isLog(f)) {
				for _, argument := range n.Args {
					literals(text, argument)
				}
			}
		}
		return true
	})
	return all, nil
}

// declared returns the names that a node declares, other than a function: types, constants, variables, parameters and
// fields.
func declared(n ast.Node) []*ast.Ident {
	var names []ast.Expr
	switch n := n.(type) {
	case *ast.TypeSpec:
		return []*ast.Ident{n.Name}
	case *ast.ValueSpec:
		return n.Names
	case *ast.Field:
		return n.Names
	case *ast.AssignStmt:
		if n.Tok == token.DEFINE {
			names = n.Lhs
		}
	case *ast.RangeStmt:
		if n.Tok == token.DEFINE {
			names = []ast.Expr{n.Key, n.Value}
		}
	}
	var ids []*ast.Ident
	for _, e := range names {
		if id, ok := e.(*ast.Ident); ok {
			ids = append(ids, id)
		}
	}
	return ids
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
func readMarkdown(document string) []passage {
	quoted := false
	lines := strings.Split(document, "\n")
	for i, line := range lines {
		switch {
		case strings.HasPrefix(line, "```text"), strings.HasPrefix(line, "```console"):
			quoted = true
		case strings.HasPrefix(line, "```"):
			quoted = false
		case quoted:
			lines[i] = ""
		}
	}
	return []passage{{text, 1, strings.Join(lines, "\n")}}
}

// readScenario returns the comment before the first file, of a script the lines that are comments.
func readScenario(scenario string) []passage {
	lines := strings.Split(scenario, "\n")
	head := true
	for i, line := range lines {
		head = head && !strings.HasPrefix(line, "-- ")
		if !head && !strings.HasPrefix(line, "#") {
			lines[i] = ""
		}
	}
	return []passage{{text, 1, strings.Join(lines, "\n")}}
}

// TestRejected shows that a phrase is found wherever it is checked, and nowhere else.
func TestRejected(t *testing.T) {
	entries := parse(t)
	for label, test := range map[string]struct {
		file, text string
		want       int // the line of the phrase, 0 for none
	}{
		"comment": {file: "a.go", text: "package a\n\n// f tells whether it is so.\nfunc f() {}\n",
			want: 3},
		"help of a metric": {file: "a.go", text: "package a\n\nvar v = opts{\n\tHelp: \"Gives the number.\",\n}\n", want: 4},
		"help of a flag": {file: "a.go",
			text: "package a\n\nfunc f() {\n\tflags.StringVar(&v, \"x\", \"\", \"what nobody needs\")\n}\n", want: 4},
		"log message":         {file: "a.go", text: "package a\n\nfunc f() {\n\tc.log.V(1).Info(\"nobody is there\")\n}\n", want: 4},
		"refusal":             {file: "a.go", text: "package a\n\nvar s = \"the user is told\"\n"},
		"rejected refusal":    {file: "a.go", text: "package a\n\nvar s = \"it is left to people\"\n", want: 3},
		"refusal in a test":   {file: "a_test.go", text: "package a\n\nvar s = \"it is left to people\"\n"},
		"comment alone":       {file: "a.go", text: "package a\n\n// f says so.\nfunc f() {}\n", want: 3},
		"comment in document": {file: "a.md", text: "It says so.\n"},
		"name":                {file: "a.go", text: "package a\n\nvar a, waker int\n", want: 3},
		"name of a parameter": {file: "a.go", text: "package a\n\nfunc f(\n\tworld int) {\n}\n", want: 4},
		"name of a function":  {file: "a.go", text: "package a\n\nfunc few() {}\n", want: 3},
		"not of a function":   {file: "a.go", text: "package a\n\nvar few int\n"},
		"part of a name":      {file: "a.go", text: "package a\n\nvar worldwide int\n"},
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
				if slices.ContainsFunc(entries,
					func(e entry) bool { return e.rejects(&p) && e.pattern.MatchString(line) }) {
					got = p.line + i
				}
			}
		}
		if got != test.want {
			t.Errorf("%s: found in line %d, want %d", label, got, test.want)
		}
	}
}
