// Package stable compares names that users depend on with the lists in docs/stability, for tests. A name that is
// added, changed or removed needs an edit of its list.
package stable

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Compare fails if the lines of a file differ from the names, in any order. With update it writes the names, sorted,
// into the file instead. No name has a line break.
func Compare(t *testing.T, file string, names []string, update bool) {
	t.Helper()
	names = slices.Clone(names)
	slices.Sort(names)
	if len(names) == 0 || len(names) != len(slices.Compact(slices.Clone(names))) {
		t.Fatalf("%s: want names, each once", filepath.Base(file))
	}
	text := strings.Join(names, "\n") + "\n"
	if update {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	listed, err := os.ReadFile(file) //nolint:gosec // a list of the repository, which the test names
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(listed), "\n"), strings.Split(text, "\n")); diff != "" {
		t.Errorf("names that users depend on differ from %s (-listed +present). docs/stability.md has which may change; "+
			"-args -update writes the list:\n%s", filepath.Base(file), diff)
	}
}

// exitCodes matches the lines of a help text with exit codes.
var exitCodes = regexp.MustCompile(`(?m)^  ([0-9])  \S`)

// Commands returns the flags of a command and of those below it, each with shorthand, type and default, and the exit
// codes that their help lists. Hidden commands and flags are left out.
func Commands(root *cobra.Command) []string {
	if root.Hidden {
		return nil
	}
	path := root.CommandPath()
	names := []string{path}
	for _, m := range exitCodes.FindAllStringSubmatch(root.Long, -1) {
		names = append(names, path+" exits with "+m[1])
	}
	root.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		name := fmt.Sprintf("%s --%s %s", path, f.Name, f.Value.Type())
		if f.Shorthand != "" {
			name += " -" + f.Shorthand
		}
		if f.DefValue != "" && f.DefValue != "[]" {
			name += " = " + f.DefValue
		}
		names = append(names, name)
	})
	for _, below := range root.Commands() {
		names = append(names, Commands(below)...)
	}
	return names
}
