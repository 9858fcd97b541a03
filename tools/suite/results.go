package suite

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// modulePath begins the import paths of all modules of the project.
const modulePath = "github.com/opgate/opgate"

// event is a line of go test -json.
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64 // seconds
}

// test is the result of a test, or of a subtest.
type test struct {
	pkg, name string
	// result is pass, fail or skip, and empty where the process ended before.
	result  string
	elapsed time.Duration
	// clustered is whether the test has clusters, and cpu is the CPU time of these.
	clustered bool
	cpu       time.Duration
	output    strings.Builder
}

// cost is the CPU time of the test's clusters, or how long it ran where it has none: a test with one waits for its turn.
func (t *test) cost() time.Duration {
	if t.clustered {
		return t.cpu
	}
	return t.elapsed
}

// top is the name of the test that a subtest belongs to.
func (t *test) top() string {
	name, _, _ := strings.Cut(t.name, "/")
	return name
}

func (t *test) failed() bool { return t.result != "pass" && t.result != "skip" }

// results are those of a step.
type results struct {
	tests map[string]*test // by package and name
	order []*test
	// failed are the packages that failed, and outputs what was printed outside tests, or by the compiler.
	failed  map[string]bool
	outputs map[string]*strings.Builder
}

// clusterTime is what the harness prints of a test with clusters.
var clusterTime = regexp.MustCompile(`CPU time of its cluster: (\d+\.\d)s`)

// readResults reads the events of a step. A file without events is that of a step which did not run.
func readResults(file string) (*results, error) {
	in, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }()
	return decodeResults(in)
}

func decodeResults(in io.Reader) (*results, error) {
	r := &results{tests: map[string]*test{}, failed: map[string]bool{}, outputs: map[string]*strings.Builder{}}
	events := json.NewDecoder(bufio.NewReader(in))
	for {
		var e event
		switch err := events.Decode(&e); {
		case errors.Is(err, io.EOF):
			return r, nil
		case err != nil:
			return nil, fmt.Errorf("read the events of go test: %w", err)
		}
		r.add(&e)
	}
}

func (r *results) add(e *event) {
	pkg := strings.TrimPrefix(strings.TrimPrefix(e.Package, modulePath), "/")
	if e.Test == "" {
		switch e.Action {
		case "fail":
			r.failed[pkg] = true
		case "output":
			if r.outputs[pkg] == nil {
				r.outputs[pkg] = &strings.Builder{}
			}
			r.outputs[pkg].WriteString(e.Output)
		}
		return
	}
	key := pkg + " " + e.Test
	t := r.tests[key]
	if t == nil {
		t = &test{pkg: pkg, name: e.Test}
		r.tests[key] = t
		r.order = append(r.order, t)
	}
	switch e.Action {
	case "pass", "fail", "skip":
		t.result, t.elapsed = e.Action, time.Duration(e.Elapsed*float64(time.Second))
		if !t.failed() && !strings.Contains(t.name, "/") {
			t.output.Reset()
		}
	case "output":
		t.output.WriteString(e.Output)
		if m := clusterTime.FindStringSubmatch(e.Output); m != nil {
			seconds, _ := strconv.ParseFloat(m[1], 64) // the expression allows nothing else
			t.clustered = true
			t.cpu += time.Duration(seconds * float64(time.Second))
		}
	}
}

// failures are the failed tests that are not subtests, and the packages that failed without one: they do not compile, or
// their TestMain failed.
func (r *results) failures() (tests []*test, packages []string) {
	left := maps.Clone(r.failed)
	for _, t := range r.order {
		if t.failed() && t.name == t.top() && r.failed[t.pkg] {
			tests = append(tests, t)
			delete(left, t.pkg)
		}
	}
	return tests, slices.Sorted(maps.Keys(left))
}

// text is everything that a test and its subtests printed, and what its package did outside tests.
func (r *results) text(t *test) string {
	var all strings.Builder
	for _, other := range r.order {
		if other.pkg == t.pkg && other.top() == t.name {
			all.WriteString(other.output.String())
		}
	}
	if out := r.outputs[t.pkg]; out != nil {
		all.WriteString(out.String())
	}
	return all.String()
}
