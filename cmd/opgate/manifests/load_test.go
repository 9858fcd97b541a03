package manifests

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"
)

// load reads a text as `opgate check` reads standard input.
func load(t *testing.T, text string) *Input {
	t.Helper()
	in, err := Gather([]string{"-"}, strings.NewReader(text), Options{Namespace: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// Every document of a long stream has its own number and line.
func TestManyDocuments(t *testing.T) {
	var b strings.Builder
	for i := range 3_000 {
		fmt.Fprintf(&b, "---\napiVersion: operators.coreos.com/v1alpha1\nkind: Subscription\nmetadata: {name: s%d}\nspec: {name: p, source: s, sourceNamespace: olm}\n", i)
	}
	in := load(t, b.String())
	for _, m := range in.Units {
		if len(in.Problems) != 0 || len(m.Objects) != 3_000 {
			t.Fatalf("%d problems, %d objects, want 0 and 3000", len(in.Problems), len(m.Objects))
		}
		last := m.Objects[2_999]
		if want := (Place{File: "-", document: 3_000, Line: 2_999*5 + 2}); last.Place != want {
			t.Errorf("the last object is in %v, want %v", last.Place, want)
		}
	}
}

// TestConcerning: a file that cannot be read is no warning if another parser may find an object of OLM or of Opgate in
// it.
func TestConcerning(t *testing.T) {
	wide := func(s string, bigEndian bool) string {
		var b strings.Builder
		for _, r := range "\ufeff" + s {
			if bigEndian {
				b.Write([]byte{byte(r >> 8), byte(r)})
			} else {
				b.Write([]byte{byte(r), byte(r >> 8)})
			}
		}
		return b.String()
	}
	const subscription = "apiVersion: operators.coreos.com/v1alpha1\nkind: Subscription\n"
	const twice = "metadata: {name: a, name: b}\n"
	for _, tc := range []struct {
		name, text string
		concerning bool
	}{
		{name: "control: ISO 8859-1", text: "name: caf\xe9\n"},
		{name: "control: a key twice", text: "apiVersion: v1\nkind: ConfigMap\n" + twice},
		{name: "control: JSON with comments", text: "{\n// a\n\"path\": \"C:\\\\src\"}"},
		{name: "attack: UTF-16", text: wide(subscription, true), concerning: true},
		{name: "attack: UTF-16, little endian", text: wide(subscription, false), concerning: true},
		{name: "attack: ISO 8859-1 with an object", text: subscription + "# caf\xe9\n", concerning: true},
		{name: "attack: a key twice", text: subscription + twice, concerning: true},
		{name: "attack: a key twice, and escapes",
			text:       "apiVersion: \"oper\\u0061tors.coreos.com/v1alpha1\"\nkind: \"Subs\\x63ription\"\n" + twice,
			concerning: true},
		{name: "attack: a key twice, and a text on two lines",
			text:       "apiVersion: \"oper\\\n  ators.coreos.com/v1alpha1\"\nkind: \"Subs\\\n cription\"\n" + twice,
			concerning: true},
		{name: "attack: a key twice, and a binary text",
			text: "apiVersion: !!binary b3BlcmF0b3JzLmNvcmVvcy5jb20vdjFhbHBoYTE=\nkind: a\n" + twice, concerning: true},
		{name: "attack: a key twice, and a tag in escapes",
			text: "apiVersion: !<tag:yaml.org,2002:bin%61ry> b3Blcg==\nkind: a\n" + twice, concerning: true},
		{name: "attack: a key twice, and a tag by a handle",
			text:       "%TAG !e! tag:yaml.org,2002:bin\n---\napiVersion: !e!ary b3Blcg==\nkind: a\n" + twice,
			concerning: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			writeFiles(t, dir, map[string]string{"a.yaml": tc.text})
			in, err := Gather([]string{dir}, nil, Options{Namespace: "shop"})
			if err != nil {
				t.Fatal(err)
			}
			if len(in.Problems) == 0 || in.Problems[0].Operators != tc.concerning {
				t.Errorf("problems %+v", in.Problems)
			}
		})
	}
}

// TestIrregularFiles: what is no file in a directory, or cannot be read, is a problem, and all else is read. A pipe that is
// named is read.
func TestIrregularFiles(t *testing.T) {
	const object = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n"
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{"a.yaml": object})
	for _, below := range []string{"built", "closed"} {
		if err := os.Mkdir(filepath.Join(dir, below), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	pipes := []string{filepath.Join(dir, "pipe.yaml"), filepath.Join(dir, "built", "kustomization.yaml")}
	for _, pipe := range pipes {
		if err := syscall.Mkfifo(pipe, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := len(pipes)
	if os.Geteuid() != 0 { // who may read everything
		want++
		if err := os.Chmod(filepath.Join(dir, "closed"), 0); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Chmod(filepath.Join(dir, "closed"), 0o700) })
	}
	in, err := Gather([]string{dir}, nil, Options{})
	if err != nil || len(in.Problems) != want || len(in.Units) != 1 || len(in.Units[0].Objects) != 1 {
		t.Fatalf("%v: %d problems, want %d: %+v", err, len(in.Problems), want, in)
	}
	for _, p := range in.Problems {
		if !p.Operators {
			t.Errorf("%s may hold anything", p)
		}
	}
	written := make(chan error, 1)
	go func() { written <- os.WriteFile(pipes[0], []byte(object), 0o600) }()
	in, err = Gather(pipes[:1], nil, Options{})
	if err != nil || len(in.Problems) > 0 || len(in.Units) != 1 {
		t.Errorf("%v: a pipe that is named: %+v", err, in)
	}
	if err := <-written; err != nil {
		t.Error(err)
	}
}

// parsersBreaks are where the YAML parser ends a line.
var parsersBreaks = regexp.MustCompile("\r\n|[\r\n\u0085\u2028\u2029]")

// FuzzLoad reads anything: the loader never panics, what makes an input unusable has a place, and what plainYAML reads,
// anyYAML reads in the same way.
func FuzzLoad(f *testing.F) {
	for _, seed := range []string{
		"apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {a: b}}\n---\n", "a: &a\n- *a\n",
		"{\"items\":[{}]}", "--- |\n x\n...\n%TAG ! a\n---\n", "\ufeff{}\r---\u2028", "<<: *x",
		"---\n# \x00\n\nkind: a\nyes: b\n0x1: |\n  c\n", "# a\x01\nkind: a\n", "kind: a\ntrue: b\nyes: c\n", "kind: a\n? b\n: c\n",
		`{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"operators.coreos.com/v1alpha1","kind":"InstallPlan","metadata":{"generateName":"a"},"spec":{"approval":"","approved":false,"clusterServiceVersionNames":["a"]},"status":{"phase":"RequiresApproval","plan":[{"resource":{"kind":"ClusterServiceVersion","manifest":"{}"}}]}}]}`,
		"kind: SubscriptionList\napiVersion: operators.coreos.com/v1alpha1\nitems: [&a {metadata: {name: x}, spec: {name: p, source: s, sourceNamespace: t, sourceNamespace: t}}, *a]\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if !utf8.Valid(data) {
			return
		}
		for _, c := range split(data) {
			plain, ok := plainYAML(c, Place{})
			if r := anyYAML(c, Place{}); ok && (len(r.problems) > 0 || r.documents[0].Place != plain.documents[0].Place ||
				string(r.documents[0].raw) != string(plain.documents[0].raw)) {
				t.Errorf("%q is %+v, or %+v", c.text, plain, r)
			}
		}
		lines := 1 + len(parsersBreaks.FindAllIndex(data, -1))
		for _, p := range load(t, string(data)).Problems {
			if p.document < 1 || p.Line < 1 || p.Line > lines+1 || p.Text == "" {
				t.Errorf("a problem without a place in %d lines: %+v", lines, p)
			}
		}
	})
}
