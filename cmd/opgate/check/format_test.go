package check

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jstemmer/go-junit-report/v2/junit"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/tools/txtar"

	"github.com/opgate/opgate/cmd/opgate/cli"
)

// TestSARIF: what all samples get together fits the schema of SARIF 2.1.0.
func TestSARIF(t *testing.T) {
	schema, err := jsonschema.NewCompiler().Compile("testdata/sarif-schema-2.1.0.json")
	if err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"nothing":          {"-f", "-"},
		"the samples":      {samplesDir},
		"their refusals":   {samplesDir, "--only=refused"},
		"a name to escape": {"-n", "shop", escapedFile(t)},
	} {
		cmd := Command(time.Now)
		var out bytes.Buffer
		cmd.SetIn(strings.NewReader(""))
		cmd.SetOut(&out)
		cmd.SetErr(io.Discard)
		cmd.SetArgs(append(args, "-o", "sarif"))
		if err, failed := errors.AsType[*cli.ExitError](cmd.Execute()); failed && err.Code != exitRefused {
			t.Fatal(err)
		}
		report, err := jsonschema.UnmarshalJSON(&out)
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(report); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		results := report.(map[string]any)["runs"].([]any)[0].(map[string]any)["results"].([]any)
		if len(results) == 0 == (name != "nothing") {
			t.Errorf("%s: %d results", name, len(results))
		}
	}
}

// escapedFile is a file with an odd name that has a refusal.
func escapedFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a b%,:\x1b.yaml")
	write(t, path, policyText+"---\n"+forbidden)
	return path
}

// many are documents as in a large repository: policies, Subscriptions with and without one, and other kinds.
func many(n int) []byte {
	var b bytes.Buffer
	for i := range n / 5 {
		fmt.Fprintf(&b, `---
apiVersion: policy.open-cluster-management.io/v1beta2
kind: OperatorPolicy
metadata: {name: p%[1]d, namespace: policies}
spec:
  remediationAction: enforce
  complianceType: mayhave
  upgradeApproval: None
  subscription: {name: p%[1]d, namespace: ns%[2]d, channel: stable, source: community, sourceNamespace: olm}
---
apiVersion: operators.coreos.com/v1alpha1
kind: Subscription
metadata: {name: p%[1]d, namespace: ns%[2]d}
spec: {name: p%[1]d, channel: alpha, source: community, sourceNamespace: olm}
---
apiVersion: operators.coreos.com/v1alpha1
kind: Subscription
metadata: {name: q%[1]d, namespace: ns%[2]d}
spec: {name: q%[1]d, channel: stable, source: community, sourceNamespace: olm}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: d%[1]d, namespace: ns%[2]d}
spec: {replicas: 1}
---
image: {repository: example.com/d%[1]d, tag: v1}
`, i, i%50)
	}
	return b.Bytes()
}

// TestFormats: every format is written for many documents, and those that machines read can be read.
func TestFormats(t *testing.T) {
	data := many(500)
	for name := range formats {
		out, stderr, code := run(data, "-o", name)
		if code != exitRefused || !strings.Contains(out, "alpha") {
			t.Errorf("%s: exit code %d: %.300s%.300s", name, code, out, stderr)
		}
		if !strings.Contains(out+stderr, "skipped: 100 documents without apiVersion and kind") {
			t.Errorf("%s does not name what was skipped: %.300s", name, stderr)
		}
		if strings.Contains(out, "was changed") {
			t.Errorf("%s says that something was changed", name)
		}
		var suites junit.Testsuites
		if name != "junit" {
			continue
		}
		if err := xml.Unmarshal([]byte(out), &suites); err != nil || suites.Suites[0].Failures != 100 ||
			suites.Suites[0].Tests != 300 {
			t.Errorf("%d failures in %d tests, want 100 in 300: %v", suites.Suites[0].Failures, suites.Suites[0].Tests,
				err)
		}
	}
}

// TestSentencesOnce: for no sample the text says one sentence twice below an object, nor the reason of a plan below its
// policy.
func TestSentencesOnce(t *testing.T) {
	for _, s := range samples(t) {
		out, _, _ := run(s.text, s.flags()...)
		for block := range strings.SplitSeq(out, "\n") {
			if strings.Contains(block, "(operatorpolicy/pending): ") {
				t.Errorf("%s repeats a plan's verdict: %s", s.name, block)
			}
		}
		var below []string
		for line := range strings.Lines(out) {
			if !strings.HasPrefix(line, " ") {
				below = nil
			}
			if slices.Contains(below, line) {
				t.Errorf("%s says twice: %s", s.name, line)
			}
			below = append(below, line)
		}
	}
}

// BenchmarkCheck judges 5,000 documents, in every format.
func BenchmarkCheck(b *testing.B) {
	data := many(5_000)
	for name := range formats {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, stderr, code := run(data, "-o", name); code != exitRefused {
					b.Fatalf("exit code %d: %s", code, stderr)
				}
			}
		})
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestFirstPullRequest follows docs/check.md from an empty directory: the files that it shows, the commands, and what
// these print.
func TestFirstPullRequest(t *testing.T) {
	document, err := os.ReadFile("../../../docs/check.md")
	if err != nil {
		t.Fatal(err)
	}
	action, err := os.ReadFile("../../../action.yml")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(document), "\n## From an empty directory")
	text, _, _ = strings.Cut(text, "\n## ")
	t.Chdir(t.TempDir())
	for _, file := range regexp.MustCompile("(?s)in `([^`\n]+)`:\n\n```yaml\n(.*?)```").FindAllStringSubmatch(text,
		-1) {
		if err := os.MkdirAll(filepath.Dir(file[1]), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, file[1], file[2])
	}
	code, commands := 0, 0
	for _, block := range regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(text, -1) {
		for step := range strings.SplitSeq(strings.TrimPrefix(block[1], "$ "), "\n$ ") {
			command, want, _ := strings.Cut(step, "\n")
			commands++
			args := strings.Fields(command)
			if args[0] != "opgate" {
				if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
					t.Fatalf("%s: %v\n%s", command, err, out)
				}
				continue
			}
			cmd := Command(time.Now)
			var out bytes.Buffer
			cmd.SetOut(&out)
			cmd.SetErr(io.Discard)
			cmd.SetArgs(args[2:])
			code = 0
			if failed, ok := errors.AsType[*cli.ExitError](cmd.Execute()); ok {
				code = failed.Code
			}
			if out.String() != want {
				t.Errorf("%s prints\n%s\nthe document shows\n%s", command, out.String(), want)
			}
		}
	}
	if commands != 3 || code != exitRefused {
		t.Errorf("%d commands, the last exits with %d", commands, code)
	}
	if !strings.Contains(string(action), "default: --only=refused") || !strings.Contains(string(action), "-o github") {
		t.Error("the last command is not the one of the action")
	}
}

// TestDocument runs the commands of docs/check.md in a repository.
func TestDocument(t *testing.T) {
	archive, err := txtar.ParseFile("testdata/script/repository.txtar")
	if err != nil {
		t.Fatal(err)
	}
	document, err := os.ReadFile("../../../docs/check.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "repo")
	if err := os.MkdirAll(filepath.Join(dir, "../main/policies"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "../main/policies/none.yaml"), "")
	for _, file := range archive.Files {
		if path, found := strings.CutPrefix(file.Name, "repo/"); found {
			path = filepath.Join(dir, path)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			write(t, path, string(file.Data))
		}
	}
	t.Chdir(dir)
	commands := regexp.MustCompile(`(?m)^(?:.* )?opgate check ([^|>`+"`"+
		`\n]+)`).FindAllStringSubmatch(string(document), -1)
	if len(commands) < 6 {
		t.Errorf("docs/check.md has the commands %q", commands)
	}
	for _, m := range commands {
		if strings.Contains(m[1], "--live") {
			continue // TestCheckCluster in e2e/gate runs these
		}
		cmd := Command(time.Now)
		var out, errs bytes.Buffer
		cmd.SetIn(strings.NewReader(""))
		cmd.SetOut(&out)
		cmd.SetErr(&errs)
		cmd.SetArgs(strings.Fields(m[1]))
		refused, ok := errors.AsType[*cli.ExitError](cmd.Execute())
		if strings.Contains(m[1], " - ") || strings.HasSuffix(m[1], " -") {
			continue // the text that is piped in is tested elsewhere
		}
		if !ok || out.Len() == 0 {
			t.Errorf("opgate check %s: %v\n%s%s", m[1], refused, out.String(), errs.String())
		}
	}
	shown := "Deny  subscription shop/etcd  (apps/base/subscription.yaml:3, built by apps/overlays/dev)\n"
	if out, _, _ := run(nil, "."); !strings.Contains(out, shown) || !strings.Contains(string(document), shown) {
		t.Errorf("docs/check.md does not show what the command prints:\n%s", out)
	}
}
