package diff

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/opgate/opgate/rules/change"
)

// shown are results of every form: an upgrade, texts as an attacker would choose them, and a fault.
func shown() []*result {
	return []*result{
		{plan: "shop/install-x7", Set: &change.Set{
			CSV: "etcdoperator.v0.9.4", Package: "etcd", Version: "0.9.4", Channel: "alpha",
			Catalog: "olm/operatorhubio-catalog",
			From:    "etcdoperator.v0.9.2", FromVersion: "0.9.2",
			Differences: []change.Difference{
				{Class: change.Permissions, Risk: change.Risky, Text: "cluster-wide: get, list on secrets (core)"},
				{Class: change.Webhooks, Risk: change.Risky, Text: "mutates pods in every namespace"},
				{Class: change.Images, Text: "images from ghcr.io/example"},
			},
			Notes: []string{"definitions are compared with those of the bundle"},
		}},
		{Set: &change.Set{
			CSV: "evil.v1\x1b[2J", Package: "evil\u202e",
			Differences: []change.Difference{{Class: change.Scope,
				Text: "adds <img src=x> | [x](https://evil.example) `code` @team \x1b[31m\n"}},
			Notes: []string{"a\nb\u202e"},
		}},
		{Set: &change.Set{CSV: "etcd.v3", From: "etcd.v2", Package: "etcd",
			Differences: []change.Difference{{Class: change.Requirements, Text: "requires Kubernetes 1.36.0"}}}},
		{Set: &change.Set{CSV: "etcd.v4", Fault: "the plan has no step of it\x1b[2J"}},
	}
}

// undigested is a text with the same digest everywhere: which it is, package change decides.
func undigested(text []byte) string {
	return regexp.MustCompile("sha256:[0-9a-f]{64}").ReplaceAllString(string(text), "sha256:0123")
}

// TestFormats compares what is printed with testdata; UPDATE=1 writes it.
func TestFormats(t *testing.T) {
	for file, format := range map[string]string{"plain.txt": "text", "result.json": "json"} {
		t.Run(file, func(t *testing.T) {
			var out bytes.Buffer
			if err := formats[format](&out, shown()); err != nil {
				t.Fatal(err)
			}
			got := undigested(out.Bytes())
			path := "testdata/" + file
			if os.Getenv("UPDATE") != "" {
				if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			for _, escape := range []string{"\u202e", "\x1b[2J", "\x1b[31m\n"} {
				if format != "json" && strings.Contains(out.String(), escape) {
					t.Errorf("%q reaches the terminal", escape)
				}
			}
		})
	}
}
