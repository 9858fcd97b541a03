package node

import (
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestExpand(t *testing.T) {
	values := map[string]string{"A": "a", "B": "$(A)", "EMPTY": ""}
	for text, want := range map[string]string{
		"":                  "",
		"plain":             "plain",
		"$(A)":              "a",
		"x$(A)y$(A)z":       "xayaz",
		"$(B)":              "$(A)", // the input is not read again
		"$(EMPTY).":         ".",
		"$(UNKNOWN)":        "$(UNKNOWN)",
		"$$(A)":             "$(A)",
		"$$$(A)":            "$a",
		"$A ${A} $":         "$A ${A} $",
		"$(A":               "$(A",
		"$(UNKNOWN) $(A)":   "$(UNKNOWN) a",
		"--x=$(A)/$(EMPTY)": "--x=a/",
	} {
		if got := expand(text, values); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

func TestProgram(t *testing.T) {
	n := &Node{images: map[string]Program{
		"registry.example:5000/a":    {Path: "any"},
		"registry.example:5000/a:v2": {Path: "second"},
		"b":                          {Path: "b"},
	}}
	for image, want := range map[string]string{
		"registry.example:5000/a":               "any",
		"registry.example:5000/a:v1":            "any",
		"registry.example:5000/a:v2":            "second",
		"registry.example:5000/a:v2@sha256:abc": "second",
		"registry.example:5000/a@sha256:abc":    "any",
		"b:latest":                              "b",
		"registry.example:5000/b":               "",
		"registry.example":                      "",
	} {
		if got, ok := n.program(image); got.Path != want || ok != (want != "") {
			t.Errorf("%s is run by %q, want %q", image, got.Path, want)
		}
	}
}

func TestOpenLog(t *testing.T) {
	block := strings.Repeat("x", 32<<10)
	for _, test := range []struct {
		text  string
		lines int64
		want  string
	}{
		{"", -1, ""},
		{"", 0, ""},
		{"", 3, ""},
		{"a\nb\n", -1, "a\nb\n"},
		{"a\nb\n", 0, ""},
		{"a\nb\n", 1, "b\n"},
		{"a\nb\n", 2, "a\nb\n"},
		{"a\nb\n", 3, "a\nb\n"},
		{"a\nb", 1, "b"}, // it does not end yet
		{"a\n\n", 1, "\n"},
		{"\n", 1, "\n"},
		{"a\n" + block + "\nb\n", 1, "b\n"},
		{"a\n" + block + "\nb\n", 2, block + "\nb\n"},
		{"a\n" + block, 1, block},
		{"a\n" + block[1:] + "\n", 1, block[1:] + "\n"},
	} {
		path := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := openLog(path, test.lines)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(file)
		if err := errors.Join(err, file.Close()); err != nil || string(got) != test.want {
			t.Errorf("of %.20q the last %d lines are %.20q (%d bytes, %v), want %.20q", test.text, test.lines, got, len(got), err, test.want)
		}
	}
}

func TestPublish(t *testing.T) {
	dir := t.TempDir()
	for _, files := range []map[string][]byte{
		{"a": []byte("1"), "b": []byte("1"), "sub/c": []byte("1")},
		{"a": []byte("2"), "sub/d": []byte("2")},
		{},
		{"b": []byte("3")},
	} {
		if err := publish(dir, files); err != nil {
			t.Fatal(err)
		}
		got := map[string][]byte{}
		for _, path := range []string{"a", "b", "sub/c", "sub/d"} {
			if content, err := os.ReadFile(filepath.Join(dir, path)); err == nil {
				got[path] = content
			}
		}
		if !maps.EqualFunc(got, files, slices.Equal) {
			t.Errorf("there are %q, want %q", got, files)
		}
		// One link and one directory of data, and a link for each name.
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		tops := map[string]bool{}
		for path := range files {
			top, _, _ := strings.Cut(path, "/")
			tops[top] = true
		}
		if len(entries) != 2+len(tops) {
			t.Errorf("there are %v beside %q", entries, files)
		}
	}
}
