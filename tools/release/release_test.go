package release

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseVersion(t *testing.T) {
	for _, tag := range []string{"v0.1.0", "v1.0.0-rc.1", "v0.0.0-g0123456"} {
		if _, err := ParseVersion(tag); err != nil {
			t.Error(err)
		}
	}
	for _, tag := range []string{"", "0.1.0", "v1", "v1.2", "v01.0.0", "v1.0.0+build", "v0.0.0-0123456", "6ea399c",
		"devel"} {
		if v, err := ParseVersion(tag); err == nil || !strings.Contains(err.Error(), "v0.1.0") {
			t.Errorf("%q: got %v, %v, want an error with an example", tag, v, err)
		}
	}
}

// TestFindCommit asks a repository of its own.
func TestFindCommit(t *testing.T) {
	dir := t.TempDir()
	run := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-c", "user.name=test", "-c", "user.email=test@example.com"},
			args...)...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v: %s", args, err, out)
		}
	}
	find := func() Commit {
		t.Helper()
		commit, err := FindCommit(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		return commit
	}
	run("init", "--quiet")
	run("commit", "--quiet", "--allow-empty", "--message=first")
	untagged := find()
	if want := "v0.0.0-g" + untagged.Revision[:12]; untagged.Version().Tag != want || untagged.Changed {
		t.Errorf("got %+v, version %s, want %s", untagged, untagged.Version(), want)
	}
	if _, err := ParseVersion(untagged.Version().Tag); err != nil {
		t.Error(err)
	}
	run("tag", "nightly")
	run("tag", "v0.9.0")
	run("tag", "v0.10.0")
	if err := os.WriteFile(filepath.Join(dir, "new"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if tagged := find(); tagged.Tag != "v0.10.0" || !tagged.Changed {
		t.Errorf("got %+v, want tag v0.10.0 and a change", tagged)
	}
	if _, err := FindCommit(t.Context(), t.TempDir()); err == nil {
		t.Error("no error outside of a repository")
	}
}

const changelog = `# Changelog

## Unreleased

### Security

- Something is closed.

## [0.2.0] - 2026-12-01

### Added

- One thing
  on two lines.
- Another.

### Fixed

- A third.

## 0.1.0

- The first.
`

func TestFindNotes(t *testing.T) {
	for _, test := range []struct {
		name     string
		version  string
		released bool
		section  string
		changes  []Change
		err      string
	}{
		{
			name: "a release", version: "v0.2.0", released: true, section: "0.2.0",
			changes: []Change{{"added", "One thing on two lines."}, {"added", "Another."}, {"fixed", "A third."}},
		},
		{name: "without headings", version: "v0.1.0", released: true, section: "0.1.0",
			changes: []Change{{"changed", "The first."}}},
		{name: "not a release", version: "v0.0.0-gabc", section: "Unreleased",
			changes: []Change{{"security", "Something is closed."}}},
		{name: "a release without a section", version: "v0.3.0", released: true,
			err: `has no section about v0.3.0: add "## 0.3.0"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := FindNotes(changelog, Version{test.version}, test.released)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Fatalf("got error %v, want %q", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.changes, got.Changes()); diff != "" || got.Section != test.section {
				t.Errorf("section %s, changes (-want +got):\n%s", got.Section, diff)
			}
		})
	}
}

func TestCheckSums(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"a": "one", "b": "two"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	sums, err := sumFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := writeFile(dir, SumsFile, []byte(formatSums(sums))); err != nil {
		t.Fatal(err)
	}
	if err := CheckSums(dir); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "b"), []byte("twO"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := CheckSums(dir); err == nil || !strings.HasPrefix(err.Error(), "b has the checksum") {
		t.Errorf("got error %v, want it to name the file that was changed", err)
	}
	for _, wrong := range []string{"abc  a\n", strings.Repeat("0", 64) + "  ../a\n", strings.Repeat("0", 64) + " a\n"} {
		if err := writeFile(dir, SumsFile, []byte(wrong)); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadSums(dir); err == nil {
			t.Errorf("%q: no error", wrong)
		}
	}
}

func TestBuildReplacesReleasesOnly(t *testing.T) {
	dir := t.TempDir()
	if err := writeFile(dir, "thesis.txt", nil); err != nil {
		t.Fatal(err)
	}
	err := Build(t.Context(), dir, Options{})
	if err == nil || !strings.Contains(err.Error(), "holds something else than a release") {
		t.Errorf("got error %v, want it to leave the directory alone", err)
	}
}
