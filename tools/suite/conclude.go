package suite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

const (
	// shownTests is how many of the most expensive tests are listed, and shownPackages the same for packages.
	shownTests, shownPackages = 10, 15
	// shownLines is how many of the last lines of a flaky test's output are repeated.
	shownLines = 15
)

// failure is a test that failed, and the step that it belongs to.
type failure struct {
	*test
	step *finished
}

// conclude runs failed tests with clusters again, prints what the run found and cost, and returns an error if it failed.
func (r *run) conclude(ctx context.Context) error {
	errs := r.errs
	var failed []failure
	for _, s := range r.steps {
		tests, packages := s.results.failures()
		for _, t := range tests {
			failed = append(failed, failure{t, s})
		}
		for _, pkg := range packages {
			errs = append(errs, fmt.Errorf("%s: it does not compile, or failed outside tests", pkg))
		}
	}
	passed, err := r.again(ctx, failed)
	if err != nil {
		errs = append(errs, err)
	}
	errs = append(errs, r.compareRights(ctx), r.report(passed))
	return errors.Join(errs...)
}

// again runs each failed test once more, alone, on clusters of its own, and returns those that passed. It returns an error
// if one failed again, or may not be run again, or was flaky before.
func (r *run) again(ctx context.Context, failed []failure) (passed []*flaky, err error) {
	var errs []error
	for _, f := range failed {
		output := f.step.results.text(f.test)
		switch why := finality(output); {
		case why != "":
			errs = append(errs, fmt.Errorf("%s %s failed, and is not run again: %s", f.pkg, f.name, why))
		case !f.step.Clusters:
			errs = append(errs, fmt.Errorf("%s %s failed", f.pkg, f.name))
		case len(failed) > mostFlaky:
			errs = append(errs, fmt.Errorf("%s %s failed, and more than %d did, so that none is run again", f.pkg, f.name, mostFlaky))
		default:
			second, err := r.once(ctx, f, output)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			passed = append(passed, second)
		}
	}
	ids := make([]string, len(passed))
	for i, f := range passed {
		ids[i] = f.id()
	}
	file, err := historyFile()
	if err == nil {
		var before []string
		before, err = remember(file, r.target.Name, ids)
		for _, id := range before {
			errs = append(errs, fmt.Errorf("%s is flaky for the second time in %d runs (%s)", id, remembered, file))
		}
	}
	return passed, errors.Join(append(errs, err)...)
}

// notInName is what names of files do not have.
var notInName = regexp.MustCompile(`[^\w.-]+`)

// once runs a failed test again and keeps both outputs.
func (r *run) once(ctx context.Context, f failure, output string) (*flaky, error) {
	fmt.Fprintf(r.Log, "==> %s %s failed: running it again, alone\n", f.pkg, f.name)
	name := "again-" + notInName.ReplaceAllString(f.pkg+"-"+f.name, "-")
	tests := []string{f.name}
	for _, selected := range f.step.Run { // some of its subtests
		if strings.HasPrefix(selected, f.name+"/") {
			tests = []string{selected}
		}
	}
	pkg := "./" + strings.TrimPrefix(strings.TrimPrefix(f.pkg, f.step.Module), "/")
	second, err := r.test(ctx, 0, f.step, name, tests, []string{pkg})
	if err != nil {
		return nil, err
	}
	kept := &flaky{test: test{pkg: f.pkg, name: f.name}, logs: [2]string{}}
	outputs := [2]string{output, ""}
	if t := second.tests[f.pkg+" "+f.name]; t != nil {
		kept.result, outputs[1] = t.result, second.text(t)
	}
	for i, text := range outputs {
		kept.logs[i] = filepath.Join(r.dir, fmt.Sprintf("%s-%d.log", name, i+1))
		if err := os.WriteFile(kept.logs[i], []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	if tests, packages := second.failures(); len(tests)+len(packages) > 0 || kept.failed() {
		return nil, fmt.Errorf("%s %s failed twice (logs in %s)", f.pkg, f.name, strings.Join(kept.logs[:], " and "))
	}
	return kept, nil
}

// report prints what was flaky, what the run cost and the number of tests. It returns an error where the budget counts and
// was exceeded.
func (r *run) report(passed []*flaky) error {
	usage, err := readUsage(r.Root, r.usageFile())
	if err != nil {
		return err
	}
	all := children()
	r.printUsage(all, usage)
	r.printTests()
	for i, f := range passed {
		if i == 0 {
			fmt.Fprintln(r.Log, "==> flaky: failed, and passed alone on a fresh cluster")
		}
		fmt.Fprintf(r.Log, "%s\n", f.id())
		for i, log := range f.logs {
			data, err := os.ReadFile(log)
			if err != nil {
				return err
			}
			lines := strings.Split(strings.TrimSpace(string(data)), "\n")
			fmt.Fprintf(r.Log, "    run %d, %s ends with\n", i+1, log)
			for _, line := range lines[max(0, len(lines)-shownLines):] {
				fmt.Fprintln(r.Log, "        "+line)
			}
		}
	}
	if r.Enforce && r.target.Budget > 0 && all > r.target.Budget {
		err = fmt.Errorf("%s of CPU time are more than the budget of %s", seconds(all), r.target.Budget)
	}
	counts := map[string]int{"pass": len(passed), "fail": -len(passed)}
	for _, s := range r.steps {
		for _, t := range s.results.order {
			switch {
			case t.name != t.top():
			case t.failed():
				counts["fail"]++
			default:
				counts[t.result]++
			}
		}
	}
	fmt.Fprintf(r.Log, "%d passed, %d failed, %d skipped\n", counts["pass"], counts["fail"], counts["skip"])
	return err
}

// printUsage prints the CPU time of the packages that used most.
func (r *run) printUsage(all time.Duration, usage map[string]time.Duration) {
	var tests time.Duration
	for _, used := range usage {
		tests += used
	}
	budget := ""
	if r.target.Budget > 0 {
		budget = fmt.Sprintf(", of a budget of %s", r.target.Budget)
	}
	fmt.Fprintf(r.Log, "==> %s took %s, and %s of CPU time%s: %s in tests, %s in compilers, linkers and tools\n", r.target.Name,
		r.watch, seconds(all), budget, seconds(tests), seconds(all-tests))
	packages := slices.SortedFunc(maps.Keys(usage), func(a, b string) int { return cmp.Compare(usage[b], usage[a]) })
	var rest time.Duration
	for i, name := range packages {
		if i < shownPackages {
			fmt.Fprintf(r.Log, "    %-40s %10s\n", name, seconds(usage[name]))
			continue
		}
		rest += usage[name]
	}
	if more := len(packages) - shownPackages; more > 0 {
		fmt.Fprintf(r.Log, "    %-40s %10s\n", fmt.Sprintf("%d more packages", more), seconds(rest))
	}
}

// printTests prints the most expensive tests.
func (r *run) printTests() {
	var tests []*test
	for _, s := range r.steps {
		for _, t := range s.results.order {
			if t.name == t.top() {
				tests = append(tests, t)
			}
		}
	}
	slices.SortFunc(tests, func(a, b *test) int { return cmp.Compare(b.cost(), a.cost()) })
	fmt.Fprintln(r.Log, "==> the most expensive tests, by the CPU time of their clusters, or by how long they ran where there is none")
	for _, t := range tests[:min(shownTests, len(tests))] {
		fmt.Fprintf(r.Log, "    %-70s %10s\n", t.pkg+" "+t.name, seconds(t.cost()))
	}
}

func seconds(d time.Duration) string { return d.Round(time.Second).String() }
