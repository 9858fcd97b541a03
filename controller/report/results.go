package report

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	reports "github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

const (
	// maxResults bounds the results of a Report, which a tenant could otherwise make larger than the API server stores.
	maxResults = 500
	// maxMessage bounds the message of a result, in bytes.
	maxMessage = 1024
)

// The results of OpenReports that are used.
const (
	pass reports.Result = "pass"
	fail reports.Result = "fail"
	warn reports.Result = "warn"
	skip reports.Result = "skip"
)

// order is how results are sorted: what is cut off matters least.
var order = []reports.Result{fail, warn, pass, skip}

// PropertyDecision is the property of a failed result that distinguishes what is held until something else happens from
// what is denied.
const PropertyDecision = "decision"

// reportOf returns the Report of a namespace at a time, without metadata and timestamps; nil if nothing is installed
// there and nothing waits. The summary also counts results beyond maxResults.
func reportOf(ns *state.Namespace, now time.Time) *reports.Report {
	inspected := rules.Inspect(ns, now)
	if len(inspected) == 0 {
		return nil
	}
	r := &reports.Report{Source: "opgate", Scope: &corev1.ObjectReference{APIVersion: "v1", Kind: "Namespace",
		Name: ns.Name()}}
	for i := range inspected {
		r.Results = append(r.Results, resultsOf(ns, &inspected[i])...)
	}
	counts := map[reports.Result]int{}
	for i := range r.Results {
		counts[r.Results[i].Result]++
	}
	r.Summary = reports.ReportSummary{Pass: counts[pass], Fail: counts[fail], Warn: counts[warn], Skip: counts[skip]}
	slices.SortStableFunc(r.Results, func(a, b reports.ReportResult) int {
		return cmp.Compare(slices.Index(order, a.Result), slices.Index(order, b.Result))
	})
	if len(r.Results) > maxResults {
		r.Results = r.Results[:maxResults]
		r.Configuration = &reports.ReportConfiguration{Limits: reports.Limits{MaxResults: maxResults}}
	}
	return r
}

// resultsOf returns a failed result for each reason, a warning for each of those of policies that only inform, and
// otherwise one for each policy and Constraint that allows the object.
func resultsOf(ns *state.Namespace, o *rules.Inspected) (results []reports.ReportResult) {
	subject := []corev1.ObjectReference{{APIVersion: olm.InstallPlanGVK.GroupVersion().String(), Kind: o.Kind,
		Namespace: ns.Name(), Name: o.Name}}
	add := func(result reports.Result, policy string, rule verdict.RuleID, message string) *reports.ReportResult {
		results = append(results, reports.ReportResult{Policy: cmp.Or(policy, "none"), Rule: string(rule),
			Result: result, Subjects: subject,
			Scored: result == fail || result == pass, Description: text.Truncate(message, maxMessage)})
		return &results[len(results)-1]
	}
	for _, why := range o.Verdict.Reasons {
		r := add(fail, why.From.String(), why.Rule, why.Message)
		r.Severity, r.Properties = "high", map[string]string{PropertyDecision: why.Decision.String()}
		if why.Decision == verdict.Hold {
			r.Severity = "medium"
		}
	}
	for _, w := range o.Verdict.Warnings {
		add(warn, w.From.String(), w.Rule, w.Message)
	}
	if len(o.Verdict.Reasons) > 0 {
		return results
	}
	for _, by := range allowing(ns, &o.Verdict) {
		add(pass, by, "", "allowed")
	}
	if len(results) == 0 {
		add(skip, "", "", "no enforcing OperatorPolicy governs it, and no Constraint applies")
	}
	return results
}

// allowing returns the policies and the Constraints that an allowed object satisfies.
func allowing(ns *state.Namespace, v *verdict.Verdict) (sources []string) {
	for _, c := range v.CSVs {
		for _, by := range c.By {
			if c.Disposition == verdict.Allowed && !slices.Contains(sources, by) {
				sources = append(sources, by)
			}
		}
	}
	for _, d := range ns.Constraints().Applicable(ns.ForConstraints()) {
		if len(d.Constraints) > 0 {
			sources = append(sources, fmt.Sprintf("%s %s", verdict.KindConstraint, d.Name))
		}
	}
	return sources
}

// stamp sets the time since which each result is so: that of the same result before, else now.
func stamp(r, before *reports.Report, now time.Time) {
	key := func(result reports.ReportResult) string {
		result.Timestamp = metav1.Timestamp{}
		return fmt.Sprintf("%+v", result)
	}
	since := map[string]metav1.Timestamp{}
	for _, result := range before.Results {
		since[key(result)] = result.Timestamp
	}
	for i := range r.Results {
		known, ok := since[key(r.Results[i])]
		if !ok {
			known = metav1.Timestamp{Seconds: now.Unix()}
		}
		r.Results[i].Timestamp = known
	}
}
