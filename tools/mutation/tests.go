package mutation

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/opgate/opgate/e2e/assets/gotool"
)

const (
	// judging is the package of the rules.
	judging = "github.com/opgate/opgate/rules"
	// scenarios is the test that fails for most rules. It takes a small part of the time of its package, so it is a
	// step.
	scenarios = "^TestScenarios$"
)

// step is a run of a test binary, with a choice of its tests.
type step struct {
	pkg, dir, binary string
	choice           []string
	took             time.Duration
}

// suite are the tests of which one has to fail.
type suite struct {
	steps []step
	// dir is for files that mutants write.
	dir string
}

// mutant is the outcome for one rule, or for one place where it is recorded.
type mutant struct {
	name string
	// reached is how often the mutation dropped something.
	reached int
	// failed is the test that fails, empty if none does.
	failed string
	// err is why that is not known.
	err error
}

func (m *mutant) result() string {
	switch {
	case m.err != nil:
		return "error"
	case m.failed != "":
		return "killed"
	case m.reached > 0:
		return "survived"
	}
	return "untested" // no test has anything that the rule would refuse
}

// compile compiles the tests of the packages in which the mutations may have an effect.
func compile(ctx context.Context, root, dir string) (*suite, error) {
	overlay, err := writeOverlay(root, dir)
	if err != nil {
		return nil, err
	}
	run := func(args ...string) ([]byte, error) {
		cmd := gotool.Command(ctx, root, dir, args...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			err = fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), cmp.Or(context.Cause(ctx), err), &stderr)
		}
		return out, err
	}
	listed, err := run("list", "-test", "-json=ImportPath,Dir,Deps", "./rules/...", "./admission")
	if err != nil {
		return nil, err
	}
	s := &suite{dir: dir}
	for decoder := json.NewDecoder(bytes.NewReader(listed)); ; {
		var p struct {
			ImportPath, Dir string
			Deps            []string
		}
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return s, nil
		} else if err != nil {
			return nil, err
		}
		pkg, binary := strings.CutSuffix(p.ImportPath, ".test")
		if !binary || !slices.ContainsFunc(p.Deps, isJudging) {
			continue
		}
		pkg = pkg[strings.LastIndex(pkg, "/")+1:]
		one := step{pkg: pkg, dir: p.Dir, binary: filepath.Join(dir, pkg+".test")}
		// as make test compiles them, so that the libraries are compiled once
		if _, err := run("test", "-c", "-trimpath", "-ldflags=-s", "-overlay", overlay, "-o", one.binary,
			p.Dir); err != nil {
			return nil, err
		}
		if pkg != "admission" {
			s.steps = append(s.steps, one)
			continue
		}
		first, others := one, one
		first.choice, others.choice = []string{"-test.run", scenarios}, []string{"-test.skip", scenarios}
		s.steps = append(s.steps, first, others)
	}
}

// isJudging reports whether a dependency is the package of the rules, also as compiled for the tests of a package.
func isJudging(dep string) bool { return dep == judging || strings.HasPrefix(dep, judging+" ") }

// pass runs the tests without a mutation, and sorts the steps, the shortest first.
func (s *suite) pass(ctx context.Context, parallel int) error {
	errs := make([]error, len(s.steps))
	each(len(s.steps), parallel, func(i int) {
		failed, out, err := s.steps[i].run(ctx, mutantVariable+"=")
		if errs[i] = err; failed != "" {
			errs[i] = fmt.Errorf("%s fails without a mutation:\n%s", failed, out)
		}
	})
	slices.SortFunc(s.steps, func(a, b step) int { return cmp.Compare(a.took, b.took) })
	return errors.Join(errs...)
}

// mutants runs the tests of each mutant, until one fails, and reports the outcomes in the order of the names.
func (s *suite) mutants(ctx context.Context, names []string, parallel int, report func(*mutant)) {
	var mu sync.Mutex
	done, next := make([]*mutant, len(names)), 0
	each(len(names), parallel, func(i int) {
		m := s.mutant(ctx, names[i])
		mu.Lock()
		defer mu.Unlock()
		for done[i] = m; next < len(names) && done[next] != nil; next++ {
			report(done[next])
		}
	})
}

func (s *suite) mutant(ctx context.Context, name string) *mutant {
	m := &mutant{name: name}
	reached := filepath.Join(s.dir, strings.ReplaceAll(name, "/", "_")+".reached")
	for i := 0; i < len(s.steps) && m.failed == "" && m.err == nil; i++ {
		one := s.steps[i] // a copy, since other mutants run it at the same time
		m.failed, _, m.err = one.run(ctx, mutantVariable+"="+name, reachedVariable+"="+reached)
		notes, err := os.ReadFile(reached)
		if m.reached = len(notes); err != nil && !errors.Is(err, os.ErrNotExist) {
			m.err = err
		}
	}
	if m.failed != "" && m.reached == 0 {
		m.err = fmt.Errorf("%s fails, but not because of the mutation, which was not reached", m.failed)
	}
	return m
}

// failure is the line of a failed test. Those of its subtests come after it.
var failure = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// run runs the tests of a step until one fails, and returns its name, or "" if all pass, and what they print. It
// returns an error if they end in another way, or take too long: then the machine may be at fault.
func (s *step) run(ctx context.Context, env ...string) (failed string, out []byte, err error) {
	cmd := exec.CommandContext(ctx, s.binary, append([]string{"-test.failfast", "-test.timeout=20m"}, s.choice...)...)
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), env...)
	out, err = cmd.CombinedOutput()
	if ctx.Err() != nil {
		return "", nil, context.Cause(ctx)
	}
	if err == nil {
		s.took = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		return "", out, nil
	}
	for _, found := range failure.FindAllSubmatch(out, -1) {
		if test := string(found[1]); failed == "" || strings.HasPrefix(test, failed+"/") {
			failed = test
		}
	}
	if failed == "" || bytes.Contains(out, []byte("panic: test timed out")) {
		return "", out, fmt.Errorf("the tests of %s end, but none fails: %w\n%s", s.pkg, err, out)
	}
	return s.pkg + " " + failed, out, nil
}

// each calls do for the numbers below n, several at once.
func each(n, parallel int, do func(int)) {
	slots := make(chan struct{}, max(1, parallel))
	var running sync.WaitGroup
	for i := range n {
		slots <- struct{}{}
		running.Go(func() {
			do(i)
			<-slots
		})
	}
	running.Wait()
}
