package suite

import (
	"context"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/opgate/opgate/e2e/assets/repo"
)

// TestMain lets the test binary be what Runner.Self is.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "measure" {
		os.Exit(Measure(context.Background(), os.Args[2], os.Args[3:]))
	}
	os.Exit(m.Run())
}

// sources are a module whose tests pass, fail, or fail the first time.
var sources = map[string]string{
	"go.mod": "module github.com/opgate/opgate\n\ngo 1.26.0\n",
	"steady/steady_test.go": `package steady

import "testing"

func TestSteady(t *testing.T) { t.Run("part", func(t *testing.T) {}) }
func TestSkipped(t *testing.T) { t.Skip("not here") }
func TestWeekly(t *testing.T) { t.Error("it is left out") }
`,
	"shaky/shaky_test.go": `package shaky

import (
	"os"
	"testing"
)

func first(t *testing.T) bool {
	_, err := os.Stat(t.Name())
	if err != nil && os.WriteFile(t.Name(), nil, 0o600) != nil {
		t.Fatal(err)
	}
	return err != nil
}

func TestShaky(t *testing.T) {
	t.Log("CPU time of its cluster: 7.5s")
	if first(t) {
		t.Error("too late")
	}
}
`,
	"broken/broken_test.go": `package broken

import "testing"

func TestBroken(t *testing.T) { t.Run("part", func(t *testing.T) { t.Error("it never works") }) }
`,
	"open/open_test.go": `package open

import (
	"os"
	"testing"
)

func TestOpen(t *testing.T) {
	if _, err := os.Stat("open"); err != nil {
		_ = os.WriteFile("open", nil, 0o600)
		t.Error("FINAL: a forbidden plan was approved")
	}
}
`,
	"main/main_test.go": `package main

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) { m.Run(); os.Exit(1) }
func TestNothing(*testing.T) {}
`,
	"ended/ended_test.go": `package ended

import (
	"fmt"
	"os"
	"testing"
)

func TestMain(m *testing.M) { m.Run(); fmt.Println("FINAL: a right that it does not need"); os.Exit(1) }

func TestFirst(t *testing.T) {
	if _, err := os.Stat("first"); err != nil {
		_ = os.WriteFile("first", nil, 0o600)
		t.Error("too late")
	}
}
`,
	"syntax/syntax_test.go": "package syntax\n\nvar _ = nothing\n",
}

// play runs packages as a step, and returns what was printed and the error.
func play(t *testing.T, root string, step Step, edit func(*Runner, *Target)) (string, error) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	step.Name, step.Module = "step", "."
	target := Target{Name: "test", Title: "some tests", Lanes: []Lane{{Steps: []Step{step}}}}
	var log strings.Builder
	r := Runner{Root: root, Self: self, Log: &log}
	if edit != nil {
		edit(&r, &target)
	}
	err = r.Run(t.Context(), target)
	return log.String(), err
}

// module writes the sources, and sets a cache of its own.
func module(t *testing.T) (root string) {
	t.Helper()
	root = t.TempDir()
	checkout, err := repo.Find()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, name := range []string{".gotestsum.mod", ".gotestsum.sum"} {
		data, err := os.ReadFile(filepath.Join(checkout.Root, name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = string(data)
	}
	for _, all := range []map[string]string{files, sources} {
		for name, text := range all {
			path := filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	// The compiler's cache is found by the same variable.
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOCACHE", strings.TrimSpace(string(out)))
	t.Setenv("XDG_CACHE_HOME", filepath.Join(root, "cache"))
	return root
}

func wantTexts(t *testing.T, text string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("got\n%s\nwant %q in it", text, w)
		}
	}
}

// TestSteady: what passes is counted, and what it cost is stated.
func TestSteady(t *testing.T) {
	log, err := play(t, module(t), Step{Packages: []string{"./steady"}, Skip: []string{"TestWeekly"}}, nil)
	if err != nil {
		t.Errorf("%v\n%s", err, log)
	}
	wantTexts(t, log, "of CPU time", "    steady  ", "steady TestSteady", "1 passed, 0 failed, 1 skipped\n")
}

// TestFailures: a test with a cluster that fails runs once more; what fails twice, or may not pass by a second run, fails.
func TestFailures(t *testing.T) {
	for name, c := range map[string]struct {
		packages []string
		alone    bool // without clusters
		want     string
	}{
		"passes alone":        {[]string{"./shaky", "./steady"}, false, ""},
		"units":               {[]string{"./shaky"}, true, "shaky TestShaky failed"},
		"fails twice":         {[]string{"./broken", "./shaky"}, false, "broken TestBroken failed twice"},
		"something opened":    {[]string{"./open"}, false, "is not run again: FINAL: a forbidden plan was approved"},
		"TestMain fails, too": {[]string{"./ended"}, false, "is not run again: FINAL: a right that it does not need"},
		"TestMain fails":      {[]string{"./main"}, false, "main: it does not compile, or failed outside tests"},
		"does not compile":    {[]string{"./syntax", "./steady"}, false, "syntax: it does not compile"},
	} {
		t.Run(name, func(t *testing.T) {
			step := Step{Packages: c.packages, Skip: []string{"TestWeekly"}, Clusters: !c.alone}
			log, err := play(t, module(t), step, nil)
			switch {
			case c.want == "":
				if err != nil {
					t.Errorf("%v\n%s", err, log)
				}
				wantTexts(t, log, "==> flaky", "shaky TestShaky", "too late", "shaky TestShaky", "8s",
					"2 passed, 0 failed, 1 skipped")
			case err == nil || !strings.Contains(err.Error(), c.want):
				t.Errorf("the error is %v, want %q in it\n%s", err, c.want, log)
			}
		})
	}
}

// TestFlakyTwice: a test is flaky once in ten runs.
func TestFlakyTwice(t *testing.T) {
	root := module(t)
	step := Step{Packages: []string{"./shaky"}, Clusters: true}
	if log, err := play(t, root, step, nil); err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	if err := os.Remove(filepath.Join(root, "shaky", "TestShaky")); err != nil {
		t.Fatal(err)
	}
	const want = "shaky TestShaky is flaky for the second time in 10 runs"
	if _, err := play(t, root, step, nil); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the error is %v, want %q in it", err, want)
	}
}

// TestRemember: a test counts again after ten runs without it, and targets do not count together.
func TestRemember(t *testing.T) {
	file := filepath.Join(t.TempDir(), "opgate", "flaky.json")
	for run, c := range []struct {
		target string
		again  bool
	}{0: {"test", false}, 1: {"test-install", false}, 2: {"test", true}} {
		again, err := remember(file, c.target, []string{"gate TestA"})
		if err != nil || (len(again) > 0) != c.again {
			t.Errorf("run %d: %v %v", run, again, err)
		}
	}
	for range remembered {
		if _, err := remember(file, "test", nil); err != nil {
			t.Fatal(err)
		}
	}
	if again, err := remember(file, "test", []string{"gate TestA"}); err != nil || len(again) > 0 {
		t.Errorf("after %d runs without it: %v %v", remembered, again, err)
	}
}

// TestBudget: a budget fails a run only where it is asked to.
func TestBudget(t *testing.T) {
	root := module(t)
	for _, enforce := range []bool{false, true} {
		_, err := play(t, root, Step{Packages: []string{"./steady"}, Skip: []string{"TestWeekly"}},
			func(r *Runner, target *Target) { target.Budget, r.Enforce = 1, enforce })
		if (err != nil) != enforce || enforce && !strings.Contains(err.Error(), "more than the budget") {
			t.Errorf("enforced %t: %v", enforce, err)
		}
	}
}

// TestFinality: neither a race nor a crash passes by a second run; the end of a test process by its -timeout does.
func TestFinality(t *testing.T) {
	for output, want := range map[string]bool{
		"    x_test.go:3: got 3, want 4\n":                                            false,
		"==================\nWARNING: DATA RACE\nRead at 0x0\n":                       true,
		"    testing.go:1712: race detected during execution of test\n":               true,
		"panic: runtime error: index out of range\n":                                  true,
		"fatal error: concurrent map writes\n":                                        true,
		"panic: test timed out after 1h15m0s\n":                                       false,
		"    olm_test.go:9: its log ends with\n        fatal error: concurrent map\n": false,
		"    x_test.go:3: FINAL: a write was lost\n":                                  true,
	} {
		if got := finality(output); (got != "") != want {
			t.Errorf("%q is final: %q", output, got)
		}
	}
}

// TestTable: every target selects packages that exist, each step of a target has its own name, and each test that is
// named exists once in the packages of its step.
func TestTable(t *testing.T) {
	checkout, err := repo.Find()
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range Targets() {
		names := map[string]bool{}
		for _, lane := range target.Lanes {
			for _, step := range lane.Steps {
				if names[step.Name] {
					t.Errorf("%s has two steps %s", target.Name, step.Name)
				}
				names[step.Name] = true
				dirs := step.Except
				for _, pattern := range step.Packages {
					dirs = append(dirs, path.Join(step.Module, strings.TrimSuffix(pattern, "...")))
				}
				for _, dir := range dirs {
					if _, err := os.Stat(filepath.Join(checkout.Root, dir)); err != nil {
						t.Errorf("%s, %s: %v", target.Name, step.Name, err)
					}
				}
				there := map[string]int{}
				for _, pattern := range step.Packages {
					dir := filepath.Join(checkout.Root, step.Module, strings.TrimSuffix(pattern, "..."))
					count(t, dir, strings.HasSuffix(pattern, "..."), there)
				}
				for _, name := range slices.Concat(step.Run, step.Skip) {
					for _, name := range strings.Split(strings.Trim(strings.Split(name, "/")[0], "()"), "|") {
						if there[name] != 1 {
							t.Errorf("%s, %s: %d tests are named %s", target.Name, step.Name, there[name], name)
						}
					}
				}
			}
		}
	}
}

// TestGenerated: every package with a long form of its units is one of make test-long.
func TestGenerated(t *testing.T) {
	checkout, err := repo.Find()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	err = filepath.WalkDir(checkout.Root, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != checkout.Root && isModule(name):
			return fs.SkipDir
		case !strings.HasSuffix(name, "_test.go"):
			return nil
		}
		data, err := os.ReadFile(name)
		if dir, relative := filepath.Rel(checkout.Root, filepath.Dir(name)); strings.Contains(string(data),
			"opgate/internal/cases\"") && relative == nil {
			found["./"+filepath.ToSlash(dir)] = true
		}
		return err
	})
	if want := slices.Sorted(maps.Keys(found)); err != nil || !slices.Equal(generated, want) {
		t.Errorf("packages with generated cases are %q, want %q (%v)", generated, want, err)
	}
}

// count adds the tests in a directory, and in those below it, by their names.
func count(t *testing.T, dir string, below bool, found map[string]int) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != dir && (!below || isModule(path)):
			return fs.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		data, err := os.ReadFile(path)
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllSubmatch(data, -1) {
			found[string(m[1])]++
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func isModule(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}
