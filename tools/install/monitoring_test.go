package install_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/opgate/opgate/e2e/assets/repo"
	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/tools/chart"
)

// TestMonitoring scrapes a running gate that has approved a plan, holds another one and was overridden: every
// documented metric exists, alerts are evaluated by a real Prometheus, and every panel of the dashboard has data. Its
// cluster is its own: it counts what happens there.
func TestMonitoring(t *testing.T) {
	t.Parallel()
	checkout, err := repo.Find()
	if err != nil {
		t.Fatal(err)
	}
	e := &harness.LoopEnv{Env: harness.StartWithoutGate(t)}
	harness.Kubectl(t, e.Cluster, cluster.Admin, harness.PackageManifests, "create", "-f", "-")
	if e.Gate, err = e.StartOpgate(t.Context(), cluster.GateOptions{Loop: true, SecureMetrics: true,
		Args: []string{"--backstop=enforce", "--probe-static-policies"}}); err != nil {
		t.Fatal(err)
	}
	e.Connect(t)
	token := e.NewScraper(t, "prometheus", true)
	prometheus := e.StartPrometheus(t, chart.AlertsFile(checkout), token)
	makeHistory(t, e, prometheus)

	t.Run("every documented metric is in a scrape", func(t *testing.T) {
		documented := documentedMetrics(t, checkout)
		harness.Eventually(t, "see every metric", func(ctx context.Context) error {
			code, body, err := e.Scrape(ctx, token)
			if err != nil || code != http.StatusOK {
				return errors.Join(err, fmt.Errorf("metrics: %d %.300s", code, body))
			}
			var missing []string
			for _, name := range documented {
				if !strings.Contains(body, "\n# TYPE "+name) {
					missing = append(missing, name)
				}
			}
			if len(missing) > 0 {
				return fmt.Errorf("missing are %q", missing)
			}
			return nil
		})
	})
	t.Run("what was held, approved and overridden", func(t *testing.T) {
		want(t, prometheus, `opgate_plans_held{rule="bundle/version"} == 2`)
		want(t, prometheus, `opgate_plans_held_oldest_timestamp_seconds{rule="bundle/version"} > time() - 3600 < time() + 60`)
		want(t, prometheus, `opgate_loop_approval_latency_seconds_count == 1`)
		want(t, prometheus, `opgate_loop_approval_age_seconds_count == 1`)
		want(t, prometheus, `opgate_loop_approval_age_seconds_sum >= on() opgate_loop_approval_latency_seconds_sum`)
		want(t, prometheus, `opgate_overrides_total{rule="plan/override"} == 1`)
		want(t, prometheus, `opgate_olm_identity_last_seen_timestamp_seconds{identity="`+
			cluster.OLMUserName+`"} > time() - 3600`)
		want(t, prometheus, `opgate_ready == 1`)
	})
	t.Run("the alerts are evaluated", func(t *testing.T) {
		harness.Eventually(t, "evaluate the alerts", func(ctx context.Context) error {
			unhealthy, number, err := prometheus.UnhealthyRules(ctx)
			if err != nil || number == 0 || len(unhealthy) > 0 {
				return errors.Join(err, fmt.Errorf("of %d alerts, %q are not healthy", number, unhealthy))
			}
			return nil
		})
		// Nothing is wrong in this cluster but that a user has overridden a refusal.
		harness.Eventually(t, "fire", func(ctx context.Context) error {
			samples, err := prometheus.Query(ctx, `ALERTS{alertstate="firing"}`)
			if err != nil || len(samples) != 1 || samples[0].Labels["alertname"] != "OpgateOverrideUsed" {
				return errors.Join(err, fmt.Errorf("firing are %v, want OpgateOverrideUsed alone", samples))
			}
			return nil
		})
	})
	t.Run("every panel has data", func(t *testing.T) {
		panels, err := chart.DashboardQueries(checkout)
		if err != nil || len(panels) < 20 {
			t.Fatalf("the dashboard has %d panels (%v)", len(panels), err)
		}
		for title, queries := range panels {
			for _, query := range queries {
				want(t, prometheus, query, title)
			}
		}
	})
}

// makeHistory makes the loop approve a plan and hold another one, and a user override the refusal of a third. When
// these have been scraped, the approval of the second is refused, so that counters increase between two scrapes.
func makeHistory(t *testing.T, e *harness.LoopEnv, p *harness.Prometheus) {
	t.Helper()
	namespaces := map[string]string{}
	for _, name := range []string{"allowed", "held", "overridden"} {
		namespace := e.NewNamespace(t)
		namespaces[name] = namespace
		e.Put(t, harness.OperatorPolicy(namespace))
	}
	e.Put(t, harness.Object(`
apiVersion: operators.coreos.com/v1
kind: Constraint
metadata: {name: tenants}
spec: {constraints: '[{"type": "olm.constraint", "value": {"failureMessage": "must have a name", "cel": {"rule": "packageName != \"\""}}}]'}
`))
	e.Sync(t)
	e.Propose(t, namespaces["held"], "waits", harness.ForbiddenVersion)
	e.Propose(t, namespaces["overridden"], "urgent", harness.ForbiddenVersion)
	e.Propose(t, namespaces["allowed"], "good", harness.AllowedVersion)
	e.WaitApproved(t, namespaces["allowed"], "good")
	// OLM is seen when it writes a ClusterServiceVersion; its plans are not sent before they are approved.
	// One that is installed has an upgrade that waits, and a policy with an exception.
	upgraded := e.NewNamespace(t)
	for name, namespace := range map[string]string{"present": e.NewNamespace(t), harness.AllowedCSV: upgraded} {
		csv := harness.WithField(harness.Object(seenCSV, name, namespace),
			`{"properties":[{"type":"olm.package","value":{"packageName":"etcd","version":"0.9.2"}}]}`, "metadata",
			"annotations", metakey.Properties)
		harness.Kubectl(t, e.Cluster, cluster.OLM, harness.AsJSON(t, csv), "create", "-f", "-")
	}
	limited := harness.WithField(harness.OperatorPolicy(upgraded), "72h", "spec", "maximumWait")
	e.Put(t, harness.WithField(limited,
		[]any{map[string]any{"versions": []any{"etcdoperator.v0.9.9"}, "rules": []any{"bundle/version"},
			"reason": "ticket 78", "expires": "2126-01-01T00:00:00Z"}}, "spec", "exceptions"))
	e.Propose(t, upgraded, "upgrade", harness.ForbiddenVersion)
	harness.Kubectl(t, e.Cluster, cluster.Admin, "", "patch", "installplan", "-n", namespaces["overridden"], "urgent",
		"--type=merge",
		"--patch", `{"metadata":{"annotations":{"opgate.io/override-reason":"ticket 77"}},"spec":{"approved":true}}`)
	want(t, p, `sum(opgate_decisions_total{kind="installplan"}) > 0`)
	harness.WantRefused(t, e.Cluster, cluster.Tenant, "",
		[]string{"patch", "installplan", "-n", namespaces["held"], "waits", "--type=merge",
			"--patch", `{"spec":{"approved":true}}`}, "(bundle/version)")
}

// seenCSV is a ClusterServiceVersion that OLM writes.
const seenCSV = `
apiVersion: operators.coreos.com/v1alpha1
kind: ClusterServiceVersion
metadata: {name: %s, namespace: %s}
spec: {displayName: Etcd, install: {strategy: deployment}}
`

// want waits until a query returns samples with numbers.
func want(t *testing.T, p *harness.Prometheus, query string, of ...string) {
	t.Helper()
	query = strings.NewReplacer("$__rate_interval", "1h", "$__range", "1h", "$cluster", ".*").Replace(query)
	harness.Eventually(t, strings.Join(append(of, query), ": "), func(ctx context.Context) error {
		samples, err := p.Query(ctx, query)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(samples, func(s harness.Sample) bool {
			n, err := strconv.ParseFloat(fmt.Sprint(s.Value[1]), 64)
			return err == nil && !math.IsNaN(n)
		}) {
			return fmt.Errorf("the result is %v", samples)
		}
		return nil
	})
}

// documentedMetrics returns the metrics in docs/metrics.md, those of libraries as "prefix_".
func documentedMetrics(t *testing.T, checkout repo.Checkout) (names []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(checkout.Root, "docs", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)(\\*?)` \\|").FindAllStringSubmatch(string(text), -1) {
		if name := m[1]; m[2] == "" {
			names = append(names, name+" ")
		} else {
			names = append(names, name)
		}
	}
	if len(names) < 30 {
		t.Fatalf("docs/metrics.md has only %q", names)
	}
	return names
}
