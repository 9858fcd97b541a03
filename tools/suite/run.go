package suite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/opgate/opgate/e2e/assets/stopwatch"
)

const (
	// timeout is for a machine several times slower than usual.
	timeout = "75m"
	// noCgo is how programs and tests are compiled, so that the libraries of all are compiled once: only the race detector
	// needs cgo.
	noCgo = "CGO_ENABLED=0"
	// goGC makes compilers, linkers, tests and the processes of test clusters other than Opgate collect garbage at five times
	// their live heap instead of two: a fifth of their CPU time is saved.
	goGC = "GOGC=400"
	// endTimeout bounds how long a step may take to end after an interrupt.
	endTimeout = time.Minute
)

// Runner runs targets.
type Runner struct {
	// Root is the directory of the checkout.
	Root string
	// Self is this program, which go test runs tests with: Self "measure" FILE BINARY ARGUMENTS.
	Self string
	// Flags are added to those of go test.
	Flags []string
	// Enforce fails a target that used more than its budget.
	Enforce bool
	// Log receives everything that is printed.
	Log io.Writer
}

// run is one run of a target.
type run struct {
	*Runner
	target Target
	dir    string // of logs
	watch  stopwatch.Stopwatch

	mu    sync.Mutex
	steps []*finished
	errs  []error
}

// finished is a step that ended.
type finished struct {
	Step
	environment []string
	results     *results
}

// Run runs a target, and returns an error if it failed.
func (r *Runner) Run(ctx context.Context, target Target) error {
	active := &run{Runner: r, target: target, dir: filepath.Join(r.Root, "bin", "tests", target.Name), watch: stopwatch.Start()}
	fmt.Fprintln(r.Log, "==> "+target.Title)
	if err := os.RemoveAll(active.dir); err != nil {
		return err
	}
	if err := os.MkdirAll(active.dir, 0o750); err != nil {
		return err
	}
	var lanes sync.WaitGroup
	for _, lane := range target.Lanes {
		lanes.Go(func() {
			if err := active.lane(ctx, lane); err != nil {
				active.mu.Lock()
				defer active.mu.Unlock()
				active.errs = append(active.errs, err)
			}
		})
	}
	lanes.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return active.conclude(ctx)
}

// lane runs the steps of a lane. A step of tests that fail does not end it.
func (r *run) lane(ctx context.Context, lane Lane) error {
	environment := append(os.Environ(), goGC, noCgo)
	if lane.Assets != nil {
		found, err := r.assets(ctx, lane.Assets)
		if err != nil {
			return err
		}
		environment = append(environment, found...)
	}
	if lane.Rights {
		if err := os.Mkdir(r.rightsDir(), 0o750); err != nil {
			return err
		}
		environment = append(environment, "OPGATE_E2E_RIGHTS="+r.rightsDir())
	}
	for _, step := range lane.Steps {
		done := &finished{Step: step, environment: environment}
		var err error
		if done.results, err = r.step(ctx, lane.Nice, done); err != nil {
			return err
		}
		r.mu.Lock()
		r.steps = append(r.steps, done)
		r.mu.Unlock()
	}
	return nil
}

// compareRights returns an error if the tests, those that ran again included, used fewer rights than the chart grants.
func (r *run) compareRights(ctx context.Context) error {
	if !slices.ContainsFunc(r.target.Lanes, func(lane Lane) bool { return lane.Rights }) {
		return nil
	}
	cmd := r.command(ctx, "e2e", append(os.Environ(), noCgo), "go", "run", "-trimpath", "./internal/cmd/rights", r.rightsDir())
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("compare the rights that tests used with those of the chart: %w", err)
	}
	return nil
}

func (r *run) rightsDir() string { return filepath.Join(r.dir, "rights") }

// assets finds or builds the binaries of test clusters, and Opgate's own, which each package of tests would link again.
// It returns the variables by which tests take them.
func (r *run) assets(ctx context.Context, flags []string) ([]string, error) {
	r.mu.Lock() // lanes with the same assets wait for one build
	defer r.mu.Unlock()
	var dir strings.Builder
	find := r.command(ctx, "tools", append(os.Environ(), noCgo), "go",
		append([]string{"run", "-trimpath", "./cmd/run", "../bin/local", "./cmd/local", "assets"}, flags...)...)
	find.Stdout = &dir
	if err := find.Run(); err != nil {
		return nil, fmt.Errorf("get the binaries of test clusters: %w", err)
	}
	programs := filepath.Join(r.Root, "bin", "e2e")
	build := r.command(ctx, ".", append(os.Environ(), goGC, noCgo), "go", "build", "-trimpath", "-ldflags=-s", "-o", programs+"/",
		"./cmd/opgate", "./cmd/opgate-server")
	if err := build.Run(); err != nil {
		return nil, fmt.Errorf("build Opgate: %w", err)
	}
	return []string{"KUBEBUILDER_ASSETS=" + strings.TrimSpace(dir.String()), "OPGATE_E2E_PROGRAMS=" + programs}, nil
}

// step runs the tests of a step. That tests fail is no error.
func (r *run) step(ctx context.Context, nice int, s *finished) (*results, error) {
	packages, err := r.packages(ctx, s.Step)
	if err != nil {
		return nil, err
	}
	return r.test(ctx, nice, s, s.Name, s.Run, packages)
}

// packages lists the packages of a step.
func (r *run) packages(ctx context.Context, s Step) ([]string, error) {
	if s.Except == nil {
		return s.Packages, nil
	}
	var out strings.Builder
	list := r.command(ctx, s.Module, os.Environ(), "go", append([]string{"list"}, s.Packages...)...)
	list.Stdout = &out
	if err := list.Run(); err != nil {
		return nil, fmt.Errorf("list the packages of %s: %w", s.Module, err)
	}
	return slices.DeleteFunc(strings.Fields(out.String()), func(path string) bool {
		return slices.Contains(s.Except, strings.TrimPrefix(path, modulePath+"/"))
	}), nil
}

// test runs some tests of packages under gotestsum, which repeats the output of failed tests at the end.
func (r *run) test(ctx context.Context, nice int, s *finished, name string, tests, packages []string) (*results, error) {
	events := filepath.Join(r.dir, name+".events") // not .json: opgate check . of the repository reads those
	format := "pkgname"
	if s.Clusters {
		format = "testname"
	}
	args := []string{"-n", strconv.Itoa(nice), "go", "tool", "-modfile=" + filepath.Join(r.Root, ".gotestsum.mod"), "gotestsum",
		"--format=" + format, "--format-icons=text", "--format-hide-empty-pkg", "--hide-summary=skipped",
		"--jsonfile=" + events, "--", "-trimpath", "-ldflags=-s", "-vet=off", "-shuffle=on", "-count=1", "-timeout=" + timeout,
		fmt.Sprintf("-exec='%s' measure '%s'", r.Self, r.usageFile())}
	environment := s.environment
	if s.Race {
		args = append(args, "-race")
		environment = append(slices.Clone(environment), "CGO_ENABLED=1")
	}
	if len(tests) > 0 {
		args = append(args, "-run="+pattern(tests))
	}
	if len(s.Skip) > 0 {
		args = append(args, "-skip="+pattern(s.Skip))
	}
	args = append(append(args, r.Flags...), packages...)
	if len(s.Args) > 0 {
		args = append(append(args, "-args"), s.Args...)
	}
	err := r.command(ctx, s.Module, environment, "nice", args...).Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	found, readErr := readResults(events)
	if readErr == nil && err != nil {
		if tests, packages := found.failures(); len(tests)+len(packages) == 0 {
			readErr = fmt.Errorf("%s: go test failed before it ran a test", s.Name)
		}
	}
	return found, readErr
}

func (r *run) usageFile() string { return filepath.Join(r.dir, "usage") }

// command returns a program that runs in a module, prints to the log, and gets the interrupt that ends this process.
func (r *run) command(ctx context.Context, module string, environment []string, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = filepath.Join(r.Root, module)
	cmd.Env = environment
	cmd.Stdout, cmd.Stderr = r.Log, r.Log
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = endTimeout
	return cmd
}
