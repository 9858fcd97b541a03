// Package matrix runs the same tests on several versions of Kubernetes and OLM, and writes what came of it to
// docs/compatibility.md.
package matrix

import (
	"cmp"
	"slices"
	"strings"

	"golang.org/x/mod/semver"
)

// Tests are the tests of package gate that make a row, each with what it shows.
var Tests = []struct{ Name, Shows string }{
	{"TestControlPlane", "the resource definitions of Opgate and OLM are accepted and served; users have the shipped rights and no more"},
	{"TestDocumentsApply", "documents for OperatorPolicy are stored by client-side and server-side apply, and what is stored is what was written"},
	{"TestUnknownFields", "unknown fields are refused with their path by every mode of field validation"},
	{"TestBackstopSupported",
		"Opgate finds out which admission policies the API server serves, writes those alone, and they refuse by themselves"},
	{"TestOLM", "with a real OLM: plans are refused, held, approved and overridden, dependencies judged, operators installed and upgraded"},
}

// Row is a pair of versions, such as v1.36.3 and v0.42.0.
type Row struct {
	Kubernetes string `json:"kubernetes"`
	OLM        string `json:"olm"`
	// NotRun is why the row cannot be run from here. Empty: it can.
	NotRun string `json:"-"`
}

// Name is what the row is chosen by, such as kubernetes-1.36-olm-0.42.
func (r Row) Name() string {
	if r.NotRun != "" {
		return strings.ToLower(strings.ReplaceAll(r.Kubernetes, " ", "-"))
	}
	return "kubernetes-" + short(r.Kubernetes) + "-olm-" + short(r.OLM)
}

// former is the pair that all tests ran on before the present one. Older versions of one are paired with the former
// version of the other, so that a row is run once, and not again whenever the present pair changes.
var former = Row{Kubernetes: "v1.36.3", OLM: "v0.42.0"}

// The latest patch releases all modules of which could be fetched on 2026-11-23; 1.31.14 lacks checksums in the
// checksum database.
var (
	kubernetesVersions = []string{"v1.31.14", "v1.32.13", "v1.33.13", "v1.34.4", "v1.35.4", former.Kubernetes,
		"v1.37.2"}
	olmVersions       = []string{"v0.28.0", "v0.33.0", "v0.38.0"}
	openShiftVersions = []string{"4.18", "4.20"}
)

const noOpenShift = "needs a cluster of OpenShift"

// Rows are all rows: the present pair of versions, that all tests run on, and the former version of each with the
// present one of the other; then older versions, each with the former version of the other; then OpenShift.
func Rows(kubernetes, olm string) []Row {
	rows := []Row{{Kubernetes: kubernetes, OLM: olm}, {Kubernetes: former.Kubernetes, OLM: olm}}
	for _, version := range slices.Backward(kubernetesVersions) {
		rows = append(rows, Row{Kubernetes: version, OLM: former.OLM})
	}
	for _, version := range slices.Backward(olmVersions) {
		rows = append(rows, Row{Kubernetes: former.Kubernetes, OLM: version})
	}
	for _, version := range openShiftVersions {
		rows = append(rows, Row{Kubernetes: "OpenShift " + version, OLM: "its own", NotRun: noOpenShift})
	}
	return rows
}

func short(version string) string { return strings.TrimPrefix(semver.MajorMinor(version), "v") }

// Result is what came of a row.
type Result struct {
	Row
	// Status is "passed", "failed" or "not run".
	Status string `json:"status"`
	// Reason is why it was not run, or which tests failed.
	Reason string `json:"reason,omitempty"`
	// Date is the day of the run, UTC, and Revision the commit.
	Date     string `json:"date,omitempty"`
	Revision string `json:"revision,omitempty"`
	// Seconds is how long the tests took, without building the binaries.
	Seconds int `json:"seconds,omitempty"`
	// Machine is where.
	Machine string `json:"machine,omitempty"`
	// Tests are the results of the tests.
	Tests []TestResult `json:"tests,omitempty"`
}

// TestResult is what came of a test.
type TestResult struct {
	Name string `json:"name"`
	// Status is "pass", "fail", "skip", or "missing" where the test did not end.
	Status  string  `json:"status"`
	Seconds float64 `json:"seconds"`
	// Failed are the subtests that failed.
	Failed []string `json:"failed,omitempty"`
}

// Values of Result.Status.
const (
	Passed = "passed"
	Failed = "failed"
	NotRun = "not run"
)

// judge sets the status by the tests.
func (r *Result) judge() {
	var failed []string
	for _, test := range r.Tests {
		if test.Status != "pass" {
			failed = append(failed, strings.Join(append([]string{test.Name + " " + test.Status}, test.Failed...), ", "))
		}
	}
	r.Status, r.Reason = Passed, ""
	if len(failed) > 0 {
		r.Status, r.Reason = Failed, strings.Join(failed, "; ")
	}
}

// Merge returns a result for each row, in their order: a new one, else the one before, else that it was not run.
func Merge(rows []Row, before, now []Result) []Result {
	all := make([]Result, 0, len(rows))
	for _, row := range rows {
		same := func(r Result) bool { return r.Kubernetes == row.Kubernetes && r.OLM == row.OLM }
		result := Result{Row: row, Status: NotRun, Reason: cmp.Or(row.NotRun, "no run yet")}
		for _, results := range [][]Result{before, now} {
			if i := slices.IndexFunc(results, same); i >= 0 {
				result = results[i]
			}
		}
		all = append(all, result)
	}
	return all
}
