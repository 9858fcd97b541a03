// Package suite runs the tests of a make target, states what they cost, and runs a test with a cluster that failed once
// more, alone.
package suite

import (
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Target is what a make target runs.
type Target struct {
	Name string
	// Title is printed first.
	Title string
	// Budget is the CPU time of all processes, compilers included, on two idle cores with warm caches. Zero for none.
	Budget time.Duration
	// Lanes run at the same time.
	Lanes []Lane
}

// Lane is what runs one after another.
type Lane struct {
	// Assets are flags of the command that finds or builds the binaries of test clusters. Nil where no test needs them.
	Assets []string
	// Nice lowers the priority: tests with clusters wait for a fifth of their time, in which units run.
	Nice  int
	Steps []Step
	// Rights is whether the tests have to make Opgate use each right that it is installed with.
	Rights bool
}

// Step is one call of go test.
type Step struct {
	// Name names its log files.
	Name string
	// Module is the directory of a Go module, from the root.
	Module string
	// Packages are patterns in the module.
	Packages []string
	// Except are packages that are left out, as directories from the root.
	Except []string
	// Run and Skip are names of tests, or of subtests after a slash, as regular expressions.
	Run, Skip []string
	// Race turns the race detector on.
	Race bool
	// Clusters is whether tests run clusters: a line is printed for each, and one that fails runs again.
	Clusters bool
	// Args are those of the test binaries.
	Args []string
}

// weeklyList has a line for each test that the weekly workflow runs and CI does not:
//
//	package test | what stays covered in CI | by which test
//
//go:embed weekly.txt
var weeklyList string

// weekly returns the names of the tests of packages of a module that CI does not run.
func weekly(module string, packages []string) (names []string) {
	for line := range strings.Lines(weeklyList) {
		entry, _, _ := strings.Cut(line, " |")
		pkg, name, _ := strings.Cut(entry, " ")
		if slices.Contains(packages, "."+strings.TrimPrefix(pkg, module)) {
			names = append(names, regexp.QuoteMeta(name))
		}
	}
	return names
}

var (
	// clusters are the packages of tests of the product on a real API server, the longest first.
	clusters = []string{"./loop", "./gate", "./dependency"}
	// later are tests in clusters that make test-install runs and make test does not: sequences over a real OLM, hostile
	// sizes, whole documents, replicas that are stopped, and API servers with options of their own.
	later = []string{
		"TestLoopOLM", "TestLoopRequests", "TestReadme", "TestA4", "TestA3ParallelHostileBodies", "TestA3SlowClients",
		"TestP4LoadNeverOpens", "TestG6Killed", "TestBigPlan", "TestDocumentsApply", "TestConstraintDocument", "TestPluginDocument",
		"TestMigrationPages", "TestStaticPolicies", "TestHostedControlPlane", "TestBackstopSupported", "TestA9ClientCertificate",
		"TestBackstopOLM", "TestA5PlanLendsItsName", "TestStoredAsJudged", "TestConstraintsOLM", "TestPluginRights", "TestB1B2B3B5SharedTables",
		"TestLoopAlone", "TestG1Stalled", "TestLoopGitOps", "TestPathOLM",
	}
	// installations are the packages of tests with clusters that are about packaging, conversion, sequences and faults.
	installations = map[string][]string{
		"e2e": {"./install", "./conversion", "./explore", "./faults"}, "tools": {"./install"}, "bench": {"./scale"},
	}
	// generated are the packages with tests that try 200 of their generated cases in CI, and all with -long.
	generated = []string{"./admission", "./certs", "./cmd/opgate/manifests", "./controller/operatorpolicy/compliance", "./conversion",
		"./rules/backstop", "./rules/change", "./rules/dependency", "./snapshot"}
	// racing are packages that start goroutines or hold locks, and whose tests are short: CI runs them with the race detector.
	racing = []string{"./internal/events", "./internal/inflight", "./snapshot", "./snapshot/contents", "./snapshot/packages",
		"./snapshot/templates"}
)

func units() Lane {
	return Lane{Nice: 5, Steps: []Step{{Name: "units", Module: ".", Packages: []string{"./..."}}}}
}

func endToEnd() Lane {
	return Lane{Assets: []string{"--olm"}, Rights: true, Steps: []Step{{
		Name: "e2e", Module: "e2e", Packages: clusters, Skip: slices.Concat(later, weekly("e2e", clusters)), Clusters: true,
	}}}
}

// install are the tests of what makes artifacts and of the harness; then installations, and beside them what is long.
func install() []Lane {
	assets := []string{"--olm", "--install"}
	packaging, long := Lane{Assets: assets}, Lane{Assets: assets}
	for _, module := range []string{"e2e", "tools", "bench", "e2e/tools/distributions"} {
		step := Step{Name: strings.ReplaceAll(module, "/", "-"), Module: module, Packages: []string{"./..."}}
		others := installations[module]
		if module == "e2e" {
			others = slices.Concat(clusters, others)
		}
		for _, name := range others {
			step.Except = append(step.Except, module+strings.TrimPrefix(name, "."))
		}
		packaging.Steps = append(packaging.Steps, step)
	}
	for _, module := range []string{"tools", "e2e", "bench"} {
		packaging.Steps = append(packaging.Steps, Step{Name: "install-" + module, Module: module,
			Packages: installations[module], Skip: weekly(module, installations[module]), Clusters: true})
	}
	long.Steps = []Step{
		{Name: "later", Module: "e2e", Packages: []string{"./loop", "./gate"}, Run: later, Clusters: true},
		{Name: "race", Module: ".", Packages: racing, Race: true},
	}
	return []Lane{packaging, long}
}

// long are the long forms of generated tests, and what CI leaves out.
func long() Lane {
	step := func(name, module string, packages ...string) Step {
		return Step{Name: name, Module: module, Packages: packages, Args: []string{"-long"}}
	}
	steps := []Step{step("generated", ".", generated...), step("clusters", "e2e", append(slices.Clone(clusters), "./conversion", "./install")...),
		step("bundle", "tools", "./install"), step("explore", "e2e", "./explore"), step("faults", "e2e", "./faults")}
	steps[3].Args = append(steps[3].Args, "-walks=200", "-seed=1")
	steps[4].Args = append(steps[4].Args, "-all")
	for i := range steps {
		steps[i].Clusters = steps[i].Module != "."
	}
	return Lane{Assets: []string{"--olm", "--install"}, Steps: steps}
}

// Targets returns all targets.
func Targets() []Target {
	return []Target{
		{Name: "test", Title: "units, and beside them a real API server, etcd, kubectl and OLM, with the gate as its own process",
			Budget: 20 * time.Minute, Lanes: []Lane{units(), endToEnd()}},
		{Name: "test-unit", Title: "units", Lanes: []Lane{units()}},
		{Name: "test-e2e", Title: "a real API server, etcd, kubectl and OLM, and the gate as its own process",
			Lanes: []Lane{endToEnd()}},
		{Name: "test-install", Title: "the harness, the tools, the benchmarks, installations, and what is long",
			Budget: 38 * time.Minute, Lanes: install()},
		{Name: "test-long", Title: "the long forms of generated tests, and what CI leaves out", Lanes: []Lane{long()}},
		{Name: "test-race", Title: "units and tests with clusters, with the race detector in all packages",
			Lanes: []Lane{{Assets: []string{"--olm"}, Steps: []Step{
				{Name: "race-units", Module: ".", Packages: []string{"./..."}, Race: true},
				{Name: "race-e2e", Module: "e2e", Packages: append(slices.Clone(clusters), "./conversion"), Race: true, Clusters: true},
			}}}},
	}
}

// Find returns a target by its name.
func Find(name string) (Target, error) {
	var names []string
	for _, target := range Targets() {
		if target.Name == name {
			return target, nil
		}
		names = append(names, target.Name)
	}
	return Target{}, fmt.Errorf("there is no target %q, want one of %s", name, strings.Join(names, ", "))
}

// pattern returns the expression by which go test selects tests: each part of each name is anchored.
func pattern(names []string) string {
	anchored := make([]string, len(names))
	for i, name := range names {
		anchored[i] = "^" + strings.ReplaceAll(name, "/", "$/^") + "$"
	}
	return strings.Join(anchored, "|")
}
