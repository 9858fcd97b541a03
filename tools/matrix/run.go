package matrix

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/opgate/opgate/e2e/assets"
	"github.com/opgate/opgate/e2e/assets/gotool"
	"github.com/opgate/opgate/e2e/assets/stopwatch"
)

// testTimeout bounds the tests of a row, on a machine several times slower than usual.
const testTimeout = "75m"

// Runner runs rows.
type Runner struct {
	// Module is the directory of the e2e module.
	Module string
	// Dir keeps the test binary and the logs.
	Dir string
	// PinnedOLM is the version of OLM that needs no build of its own.
	PinnedOLM string
	// Revision is the commit that is tested.
	Revision string
	// Log receives progress lines.
	Log io.Writer

	built bool
}

// build compiles the tests, once.
func (r *Runner) build(ctx context.Context) error {
	if r.built {
		return nil
	}
	fmt.Fprintln(r.Log, "compiling the tests")
	if err := os.MkdirAll(r.Dir, 0o750); err != nil {
		return err
	}
	cmd := gotool.Command(ctx, r.Module, r.Dir, "test", "-c", "-o", r.binary(), "./gate")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("compile the tests: %w\n%s", err, out)
	}
	r.built = true
	return nil
}

func (r *Runner) binary() string { return filepath.Join(r.Dir, "gate.test") }

// Run runs a row. An error means that the machine, not the row, is at fault.
func (r *Runner) Run(ctx context.Context, row Row) (Result, error) {
	result := Result{Row: row, Status: NotRun, Reason: row.NotRun}
	if row.NotRun != "" {
		return result, nil
	}
	watch := stopwatch.Start()
	result.Date, result.Revision = watch.Date(), r.Revision
	environment, err := r.assets(ctx, row)
	if err != nil {
		result.Reason = reason(err)
		fmt.Fprintf(r.Log, "%s: not run: %s\n", row.Name(), result.Reason)
		return result, ctx.Err()
	}
	if err := r.build(ctx); err != nil {
		return Result{}, err
	}
	fmt.Fprintf(r.Log, "%s: running the tests on Kubernetes %s with OLM %s\n", row.Name(), row.Kubernetes, row.OLM)
	watch = stopwatch.Start()
	if result.Tests, err = r.test(ctx, row, environment); err != nil {
		return Result{}, err
	}
	result.Seconds, result.Date = watch.Seconds(), watch.Date()
	result.Machine = fmt.Sprintf("%d cores, %s/%s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)
	result.judge()
	fmt.Fprintf(r.Log, "%s: %s after %s %s\n", row.Name(), result.Status, watch, result.Reason)
	return result, nil
}

// assets gets the binaries of a row and returns the environment by which tests take them.
func (r *Runner) assets(ctx context.Context, row Row) ([]string, error) {
	options := assets.Options{Log: r.Log}
	plane, err := assets.FindKubernetesVersion(ctx, row.Kubernetes, options)
	if err != nil {
		return nil, err
	}
	// What runs, not what was asked for.
	out, err := exec.CommandContext(ctx, plane.KubeAPIServer(), "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("%s --version: %w", plane.KubeAPIServer(), err)
	}
	if got, want := strings.TrimSpace(string(out)), "Kubernetes "+row.Kubernetes; got != want {
		return nil, fmt.Errorf("%s says that it is %q, want %q", plane.KubeAPIServer(), got, want)
	}
	environment := []string{"KUBEBUILDER_ASSETS=" + plane.Dir, assets.OLMVariable + "="}
	if row.OLM != r.PinnedOLM {
		dir, err := assets.FindOLMVersion(ctx, row.OLM, options)
		if err != nil {
			return nil, err
		}
		environment[1] += dir
	}
	return environment, nil
}

// test runs the tests and keeps their whole output in a log.
func (r *Runner) test(ctx context.Context, row Row, environment []string) ([]TestResult, error) {
	var names []string
	for _, test := range Tests {
		names = append(names, test.Name)
	}
	log, err := os.Create(filepath.Join(r.Dir, row.Name()+".log"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	cmd := gotool.Command(ctx, filepath.Join(r.Module, "gate"), r.Dir, "tool", "test2json", "-t", r.binary(),
		"-test.v=test2json", "-test.timeout="+testTimeout,
		"-test.run=^("+strings.Join(names, "|")+")$")
	cmd.Env = append(cmd.Env, environment...)
	cmd.Stderr = log
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	results, readErr := read(io.TeeReader(stdout, log), names)
	_ = cmd.Wait() // the events say which tests failed
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return results, readErr
}

// read returns the results of the named tests from the events of test2json.
func read(events io.Reader, names []string) ([]TestResult, error) {
	results := make([]TestResult, len(names))
	for i, name := range names {
		results[i] = TestResult{Name: name, Status: "missing"}
	}
	scanner := bufio.NewScanner(events)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		var event struct {
			Action, Test string
			Elapsed      float64
		}
		ends := []string{"pass", "fail", "skip"}
		if json.Unmarshal(scanner.Bytes(), &event) != nil || !slices.Contains(ends, event.Action) {
			continue // output, or what TestMain prints
		}
		name, subtest, _ := strings.Cut(event.Test, "/")
		i := slices.Index(names, name)
		switch {
		case i < 0:
		case subtest == "":
			results[i].Status, results[i].Seconds = event.Action, event.Elapsed
		case event.Action == "fail":
			results[i].Failed = append(results[i].Failed, subtest)
		}
	}
	return results, scanner.Err()
}

// reason is the first lines of an error, without what depends on the machine: directories, and addresses of servers.
func reason(err error) string {
	var said []string
	for line := range strings.Lines(err.Error()) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "go: downloading") {
			continue
		}
		if said = append(said, line); len(said) == 2 {
			break
		}
	}
	return address.ReplaceAllString(directory.ReplaceAllString(strings.Join(said, " "), ""), "a server")
}

var (
	directory = regexp.MustCompile(`(~|/)\S*/(pkg/mod/|src/|scratch/)`)
	address   = regexp.MustCompile(`https?://[^\s:]+(:[0-9]+)?[^\s:]*`)
)
