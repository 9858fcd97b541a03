package chart_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/opgate/opgate/e2e/assets"
	"github.com/opgate/opgate/tools/chart"
)

// TestAlerts checks and tests the alerts with promtool. Each of them fires in one of the tests.
func TestAlerts(t *testing.T) {
	prometheus, err := assets.FindPrometheus(t.Context(), assets.Options{Log: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	const tests = "testdata/alerts_test.yaml"
	mustOutput(t, prometheus.Promtool, "check", "rules", "--lint=all", "--lint-fatal", chart.AlertsFile(checkout))
	mustOutput(t, prometheus.Promtool, "test", "rules", tests)
	text, err := os.ReadFile(tests)
	if err != nil {
		t.Fatal(err)
	}
	for name := range alertsFile(t) {
		fires := `alertname="` + name + `"`
		if exact := "alertname: " + name + "\n        eval_time"; !strings.Contains(string(text), fires) &&
			!strings.Contains(string(text), exact) {
			t.Errorf("alert %s fires in no test of %s", name, tests)
		}
	}
}

// TestRunbooks compares the alerts with docs/runbooks.md, both ways: each alert links to its heading, and each heading
// is of an alert.
func TestRunbooks(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(checkout.Root, "docs", "runbooks.md"))
	if err != nil {
		t.Fatal(err)
	}
	headings := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^## (Opgate\w+)$`).FindAllStringSubmatch(string(text), -1) {
		headings[m[1]] = true
	}
	for name, a := range alertsFile(t) {
		if !headings[name] {
			t.Errorf("docs/runbooks.md has no heading %s", name)
		}
		delete(headings, name)
		same(t, name+": runbook_url", a.Annotations["runbook_url"],
			"https://github.com/opgate/opgate/blob/main/docs/runbooks.md#"+strings.ToLower(name))
		for _, annotation := range []string{"summary", "description"} {
			if a.Annotations[annotation] == "" {
				t.Errorf("%s has no %s", name, annotation)
			}
		}
		switch severity := a.Labels["severity"]; severity {
		case "critical", "warning", "info":
		default:
			t.Errorf("%s has severity %q", name, severity)
		}
	}
	for name := range headings {
		t.Errorf("docs/runbooks.md has a heading %s, which is no alert", name)
	}
}

// TestClusterIsKept: where one Prometheus has many clusters, alerts say of which cluster they are, and the dashboard
// shows those that are chosen.
func TestClusterIsKept(t *testing.T) {
	aggregation := regexp.MustCompile(`\b(?:sum|min|max|group|count)\b *(?:by \(cluster\b)?`)
	for name, a := range alertsFile(t) {
		for _, found := range aggregation.FindAllString(a.Expr, -1) {
			if !strings.Contains(found, "by (cluster") {
				t.Errorf("%s drops label cluster in %q", name, a.Expr)
			}
		}
	}
	panels, err := chart.DashboardQueries(checkout)
	if err != nil {
		t.Fatal(err)
	}
	metric := regexp.MustCompile(`\b(?:opgate|process)_\w+(?:\{cluster=~"\$cluster")?`)
	for title, queries := range panels {
		for _, query := range queries {
			for _, found := range metric.FindAllString(query, -1) {
				if !strings.Contains(found, "$cluster") {
					t.Errorf("panel %q shows clusters that are not chosen: %q", title, query)
				}
			}
		}
	}
}

// TestDocumentedMetrics checks that alerts and dashboard use no metric that docs/metrics.md does not explain.
func TestDocumentedMetrics(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(checkout.Root, "docs", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	var used []string
	for _, a := range alertsFile(t) {
		used = append(used, a.Expr)
	}
	panels, err := chart.DashboardQueries(checkout)
	if err != nil {
		t.Fatal(err)
	}
	used = slices.Concat(append(slices.Collect(maps.Values(panels)), used)...)
	if len(used) < 30 {
		t.Fatalf("there are only %d queries", len(used))
	}
	for _, query := range used {
		names := regexp.MustCompile(`\bopgate_\w+`).FindAllString(query, -1)
		if len(names) == 0 && !strings.Contains(query, "process_") && !strings.Contains(query, "apiserver_") {
			t.Errorf("query %q uses no metric of Opgate", query)
		}
		for _, name := range names {
			if !strings.Contains(string(text), "\n| `"+strings.TrimSuffix(name, "_bucket")+"` |") {
				t.Errorf("query %q uses %s, which docs/metrics.md does not have", query, name)
			}
		}
	}
}
