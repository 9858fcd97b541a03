package loop

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// walk types the commands of docs/first-hour.md, and wants each to print what the document shows. Commands that only
// read, and adopt, which writes once there is something to write, are repeated until they do: OLM and the loop need a
// while. Names of plans and ages are the document's own, and warnings are left out.
func walk(t *testing.T, e *harness.OLMEnv) {
	if _, err := e.RunPlugin(t.Context(), "", cluster.Command{Args: []string{"opgate", "version"}}); err != nil {
		t.Fatal(err) // it installs the plugin, which the commands use
	}
	dir, typed := t.TempDir(), 0
	for i, part := range strings.Split(document(t, "docs/first-hour.md"), "```") {
		kind, text, _ := strings.Cut(part, "\n")
		switch {
		case i%2 == 0:
		case kind == "yaml":
			first, _, _ := strings.Cut(text, "\n")
			if err := os.WriteFile(filepath.Join(dir, strings.TrimPrefix(first, "# ")), []byte(text),
				0o600); err != nil {
				t.Fatal(err)
			}
		case kind == "console":
			for step := range strings.SplitSeq(strings.TrimPrefix(text, "$ "), "\n$ ") {
				command, want, _ := strings.Cut(step, "\n")
				typed++
				if !shows(t, e, dir, command, want) {
					t.Fatalf("the walk ends after %d commands", typed)
				}
			}
		}
	}
	if typed == 0 {
		t.Error("the document has no command")
	}
}

// shows reports whether a command prints what a document shows.
func shows(t *testing.T, e *harness.OLMEnv, dir, command, want string) bool {
	t.Helper()
	try := func() string {
		got := terminal(t, e.Cluster, "cd "+dir+"\n"+command)
		got = regexp.MustCompile(`install-[a-z0-9]{5}`).ReplaceAllString(got, "install-x7")
		got = regexp.MustCompile(`(?m) (\d+[smh])+$`).ReplaceAllString(got, " 1m")
		got = regexp.MustCompile(`(?m)^Warning: .*\n`).ReplaceAllString(got, "")
		return cmp.Diff(lines(want), lines(got))
	}
	if !regexp.MustCompile(`^kubectl (get|opgate (adopt|pending|plan)) `).MatchString(command) {
		if diff := try(); diff != "" {
			t.Errorf("%s does not print what the document shows (-document +printed):\n%s", command, diff)
			return false
		}
		return true
	}
	e.Eventually(t, command, func(context.Context) error {
		if diff := try(); diff != "" {
			return fmt.Errorf("it does not print what the document shows (-document +printed):\n%s", diff)
		}
		return nil
	})
	return !t.Failed()
}

// lines are the words of each line: the width of columns depends on names and ages.
func lines(text string) (all []string) {
	for line := range strings.Lines(strings.TrimSpace(text)) {
		all = append(all, strings.Join(strings.Fields(line), " "))
	}
	return all
}
