package manifests

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/opgate/opgate/cmd/opgate/manifests/sandbox"
	"github.com/opgate/opgate/internal/cases"
	"github.com/opgate/opgate/internal/cputime"
)

// textFields returns a kustomization for each text in the schema of kustomizations, with that text only, as JSON: keys
// are written KEY:name, the text VALUE. Both are replaced later by their spellings.
func textFields(t reflect.Type, depth int) (values []string) {
	switch t.Kind() {
	case reflect.String:
		return []string{`"VALUE"`}
	case reflect.Pointer:
		return textFields(t.Elem(), depth)
	case reflect.Slice:
		for _, value := range textFields(t.Elem(), depth) {
			values = append(values, "["+value+"]")
		}
	case reflect.Map:
		for _, value := range textFields(t.Elem(), depth) {
			values = append(values, `{"KEY:path": `+value+"}")
		}
	case reflect.Struct:
		for field := range t.Fields() {
			name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
			inline := options == "inline" || name == "" && field.Anonymous
			if depth == 0 || !field.IsExported() || name == "" && !inline {
				continue
			}
			for _, value := range textFields(field.Type, depth-1) {
				if !inline {
					value = `{"KEY:` + name + `": ` + value + "}"
				}
				values = append(values, value)
			}
		}
	default: // it holds no text
	}
	return values
}

// spellings are ways to write a key that kustomize takes for the same.
var spellings = map[string]func(key string) string{
	"as in the schema": func(key string) string { return `"` + key + `"` },
	"upper case":       func(key string) string { return `"` + strings.ToUpper(key) + `"` },
	"title case":       func(key string) string { return `"` + strings.ToUpper(key[:1]) + key[1:] + `"` },
	"folds": func(key string) string {
		return `"` +
			strings.NewReplacer("s", "ſ", "k", "\u212a").Replace(key) + `"`
	},
	"escapes":      func(key string) string { return fmt.Sprintf(`"\x%02x%s"`, key[0], key[1:]) },
	"a binary key": func(key string) string { return "!!binary " + base64.StdEncoding.EncodeToString([]byte(key)) },
}

// written are ways to write a text.
var written = map[string]func(text string) string{
	"plain":    func(text string) string { return `"` + text + `"` },
	"a binary": func(text string) string { return "!!binary " + base64.StdEncoding.EncodeToString([]byte(text)) },
	"escapes":  func(text string) string { return fmt.Sprintf(`"\u%04x%s"`, text[0], text[1:]) },
}

// spell writes a kustomization of textFields.
func spell(kustomization string, key func(string) string, text string) string {
	var out strings.Builder
	for rest := kustomization; ; {
		before, after, found := strings.Cut(rest, `"`)
		out.WriteString(before)
		if !found {
			return out.String()
		}
		token, after, _ := strings.Cut(after, `"`)
		if name, isKey := strings.CutPrefix(token, "KEY:"); isKey {
			out.WriteString("? " + key(name) + " ")
		} else {
			out.WriteString(text)
		}
		rest = after
	}
}

// outside is what a build must not reach: a server, and a git on $PATH.
type outside struct {
	url      string
	requests atomic.Int64
	gitRan   string
}

func newOutside(t *testing.T) *outside {
	w := &outside{}
	server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
		w.requests.Add(1)
		http.Error(out, "no", http.StatusTeapot)
	}))
	t.Cleanup(server.Close)
	bin := t.TempDir()
	w.url, w.gitRan = server.URL, filepath.Join(bin, "ran")
	script := "#!/bin/sh\n: > " + w.gitRan + "\nexit 1\n"
	if err := os.WriteFile(filepath.Join(bin, "git"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	return w
}

// reached reports whether something was loaded from elsewhere since the last call.
func (w *outside) reached() bool {
	_, err := os.Stat(w.gitRan)
	_ = os.Remove(w.gitRan)
	return w.requests.Swap(0) > 0 || err == nil
}

func writeFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// buildFault builds a kustomization, and returns why it cannot be built.
func buildFault(dir string) (faults []string) {
	k := newKustomization(dir)
	buildAll([]*kustomization{k})
	if k.err != nil {
		faults = append(faults, k.err.Error())
	}
	return faults
}

// buildUnchecked builds a kustomization as kustomize does.
func buildUnchecked(dir string) {
	defer func() { _ = recover() }() // a patch without a target is enough
	_, _ = krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
}

// TestH1KustomizationsLoadNothing: every text in the schema of kustomizations, and those that kustomize itself would load
// from elsewhere with its keys and its value in all spellings that kustomize reads. They are refused in our words, before
// anything is loaded (threat G32).
func TestH1KustomizationsLoadNothing(t *testing.T) {
	w := newOutside(t)
	type text struct{ field, target, key, value string }
	// loaded reports whether kustomize itself loads a text, and fails if Opgate does.
	loaded := func(c text) bool {
		dir := t.TempDir()
		text := spell(c.field, spellings[c.key], written[c.value](c.target))
		writeFiles(t, dir, map[string]string{"kustomization.yaml": text,
			base64.StdEncoding.EncodeToString([]byte(c.target)): ""})
		buildUnchecked(dir)
		would := w.reached()
		problems := buildFault(dir)
		if w.reached() {
			t.Errorf("%s was loaded by\n%s", c.target, text)
		}
		if would && (len(problems) != 1 || !strings.Contains(problems[0], "is no file and no directory here")) {
			t.Errorf("%v, for\n%s", problems, text)
		}
		return would
	}
	var spelled []text
	for _, field := range textFields(reflect.TypeFor[types.Kustomization](), 3) {
		for _, target := range []string{w.url + "/x.yaml", "git@127.0.0.1:o/r.git"} {
			if !loaded(text{field, target, "as in the schema", "plain"}) {
				continue
			}
			for _, key := range slices.Sorted(maps.Keys(spellings)) {
				for _, value := range slices.Sorted(maps.Keys(written)) {
					spelled = append(spelled, text{field, target, key, value})
				}
			}
		}
	}
	loads := map[string]int{}
	for _, c := range cases.Some(spelled) {
		if loaded(c) {
			loads[c.key+", "+c.value]++
		}
	}
	for key := range spellings {
		for value := range written {
			if loads[key+", "+value] < 3 { // the control
				t.Errorf("keys in %s, values in %s: kustomize itself loaded %d", key, value, loads[key+", "+value])
			}
		}
	}
}

// TestH1SandboxHolds: what the checks of a kustomization do not see loads nothing either: a kustomization by another
// name, and plugins.
func TestH1SandboxHolds(t *testing.T) {
	w := newOutside(t)
	transport := http.DefaultTransport
	for _, target := range []string{w.url + "/x.yaml", "git@127.0.0.1:o/r.git"} {
		for name, plugin := range map[string]string{
			"a patch":     `{"apiVersion": "builtin", "kind": "PatchTransformer", "metadata": {"name": "x"}, "PATH": %q}`,
			"a value":     `{"apiVersion": "\x62uiltin", "kind": "ValueAddTransformer", "metadata": {"name": "x"}, "targetFilePath": %q, "value": "x"}`,
			"a generator": `{apiVersion: !!binary YnVpbHRpbg==, kind: ConfigMapGenerator, metadata: {name: x}, "Files": [%q]}`,
			"a list":      `{"apiVersion": "v1", "kind": "AList", "items": [{"apiVersion": "builtin", "kind": "PatchTransformer", "metadata": {"name": "x"}, "path": %q}]}`,
		} {
			dir := t.TempDir()
			writeFiles(t, dir, map[string]string{"kustomization.yaml": "transformers: [x.yaml]",
				"x.yaml": fmt.Sprintf(plugin, target)})
			if name == "a generator" {
				writeFiles(t, dir, map[string]string{"kustomization.yaml": "generators: [x.yaml]"})
			}
			if problems := buildFault(dir); len(problems) != 1 || w.reached() {
				t.Errorf("%s of %s: %v", name, target, problems)
			}
		}
		dir := t.TempDir()
		writeFiles(t, dir, map[string]string{"other.yaml": fmt.Sprintf("resources: [%q]", target)})
		if err := os.Symlink("other.yaml", filepath.Join(dir, "kustomization.yaml")); err != nil {
			t.Fatal(err)
		}
		if problems := buildFault(dir); len(problems) != 1 || w.reached() {
			t.Errorf("a link to a kustomization, %s: %v", target, problems)
		}
	}
	if w.reached() || os.Getenv("PATH") == "" || http.DefaultTransport != transport {
		t.Error("network and programs are not back after a build")
	}
}

// bomb is a YAML document of nested aliases that stands for 10 to the power of 9 elements.
func bomb(head string) string {
	var b strings.Builder
	b.WriteString(head + "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n")
	for i := 1; i < 9; i++ {
		fmt.Fprintf(&b, "a%d: &a%d [%s*a%d]\n", i, i, strings.Repeat(fmt.Sprintf("*a%d,", i-1), 9), i-1)
	}
	return b.String()
}

// TestH3KustomizationsAreBounded: nothing that a kustomization reads takes more memory or time than a repository needs
// (threat G33).
func TestH3KustomizationsAreBounded(t *testing.T) {
	resource := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"a resource": {
			files: map[string]string{"kustomization.yaml": "resources: [x.yaml]", "x.yaml": bomb(resource)},
			want:  "when its aliases are replaced",
		},
		"a second document": {
			files: map[string]string{"kustomization.yaml": "resources: [x.yaml]",
				"x.yaml": resource + "---\n" + bomb(resource)},
			want: "when its aliases are replaced",
		},
		"a patch": {
			files: map[string]string{"kustomization.yaml": "resources: [x.yaml]\npatches: [{path: p.yaml}]",
				"x.yaml": resource, "p.yaml": bomb(resource)},
			want: "when its aliases are replaced",
		},
		"a patch in the kustomization": {
			files: map[string]string{"kustomization.yaml": "patches:\n- patch: |-\n    " +
				strings.ReplaceAll(bomb(resource), "\n", "\n    ")},
			want: "when its aliases are replaced",
		},
		"the kustomization": {
			files: map[string]string{"kustomization.yaml": bomb("")},
			want:  "when its aliases are replaced",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			writeFiles(t, dir, c.files)
			before := sandbox.HeapBytes()
			problems := buildFault(dir)
			if len(problems) != 1 || !strings.Contains(problems[0], c.want) {
				t.Errorf("%v, want %q", problems, c.want)
			}
			if grown := int64(sandbox.HeapBytes()) - int64(before); grown > 64<<20 {
				t.Errorf("the heap grew by %d MiB", grown>>20)
			}
		})
	}
}

// TestH3Diamonds: directories that name the next one twice are read twice as often at each level.
func TestH3Diamonds(t *testing.T) {
	defer func(limits sandbox.Limits) { buildLimits = limits }(buildLimits)
	buildLimits.Time = time.Hour // on a machine that is busy enough it would be reached first
	root := t.TempDir()
	const depth = 13
	for i := range depth {
		for _, side := range []string{"a", "b"} {
			dir := filepath.Join(root, fmt.Sprint(side, i))
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			next := fmt.Sprintf("resources: [../a%d, ../b%d]\nnamePrefix: %s\n", i+1, i+1, side)
			if i == depth-1 {
				next = "resources: [x.yaml]\nnamePrefix: " + side + "\n"
			}
			writeFiles(t, dir, map[string]string{"kustomization.yaml": next,
				"x.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n"})
		}
	}
	problems := buildFault(filepath.Join(root, "a0"))
	if len(problems) != 1 || !strings.Contains(problems[0], "it reads more than 2048 files") {
		t.Errorf("%v", problems)
	}
}

// TestH3KustomizePanics: a kustomization on which kustomize panics is a fault of the input.
func TestH3KustomizePanics(t *testing.T) {
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{"kustomization.yaml": "patchesJson6902: [{path: x}]"})
	if problems := buildFault(dir); len(problems) != 1 ||
		!strings.Contains(problems[0], "kustomize fails") {
		t.Errorf("%v", problems)
	}
}

// Keys and texts are spelled as YAML that is JSON but for its tags.
func TestSpell(t *testing.T) {
	text := spell(`{"KEY:resources": ["VALUE"]}`, spellings["as in the schema"], written["plain"]("x"))
	if want := `{? "resources" : ["x"]}`; text != want {
		t.Errorf("%s, want %s", text, want)
	}
	var k types.Kustomization
	if err := k.Unmarshal([]byte(text)); err != nil || !slices.Equal(k.Resources, []string{"x"}) {
		raw, _ := json.Marshal(k)
		t.Errorf("%s, %v", raw, err)
	}
}

// TestH3DocumentsAreBounded has documents that are small, and take all memory or hours once they are read.
func TestH3DocumentsAreBounded(t *testing.T) {
	const head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
	long := `&a "` + strings.Repeat("x", 1<<20) + `"`
	aliases := "[*a" + strings.Repeat(", *a", 100_000) + "]\n"
	const list = `{"apiVersion":"v1","kind":"List","items":[`
	lists := func(n int) string {
		return strings.Repeat(list, n) +
			strings.Repeat(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}},`, 10_000) +
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}` + strings.Repeat("]}", n)
	}
	for _, tc := range []struct{ name, text, refused string }{
		{name: "control: an alias", text: head + "data: {a: &a text, b: *a}\n"},
		{name: "control: a list in a list", text: lists(2)},
		{name: "attack: a long text with many aliases", text: head + "data: " + long + "\nmore: " + aliases,
			refused: "aliases"},
		{name: "attack: the same where one parser stops", text: head + "data: " + long + "\nmore: " + aliases +
			"last: [", refused: "not YAML"},
		{name: "attack: lists in lists", text: lists(3_000), refused: "in more than 8 lists"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			begin := cputime.Used()
			m := load(t, tc.text)
			if took := cputime.Used() - begin; took > 20*time.Second {
				t.Errorf("it took %v", took)
			}
			if (tc.refused == "") != (len(m.Problems) == 0) || tc.refused != "" &&
				!strings.Contains(m.Problems[0].Text, tc.refused) {
				t.Errorf("problems %.500v, want %q", m.Problems, tc.refused)
			}
		})
	}
}

// TestH3InputsAreBounded has many files of blanks, which a repository holds in a few kilobytes.
func TestH3InputsAreBounded(t *testing.T) {
	dir := t.TempDir()
	for i := range maxInputs/MaxInput + 2 {
		file := filepath.Join(dir, fmt.Sprintf("%d.yaml", 100+i))
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(file, MaxInput); err != nil { // takes no space, and is read as zeros
			t.Fatal(err)
		}
	}
	g, err := Gather([]string{dir}, nil, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if last := g.Problems[len(g.Problems)-1]; !strings.Contains(last.Text, "larger than 512 MiB in all") ||
		g.size > maxInputs+MaxInput {
		t.Errorf("%d bytes are read, with problems %v", g.size, g.Problems)
	}
}
