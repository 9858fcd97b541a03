package admission

import (
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/opgate/opgate/admission/olmidentity"
	"github.com/opgate/opgate/admission/scenario"
	"github.com/opgate/opgate/admission/scenario/scenariotest"
)

// TestMetricsOfCallers posts an override and a write by OLM, as the API server and as any client that reaches the port:
// only the API server's are counted.
func TestMetricsOfCallers(t *testing.T) {
	scenarios := scenariotest.Load(t, scenarioDir, versions)
	i := slices.IndexFunc(scenarios, func(s *scenario.Scenario) bool { return s.Name == "plan-override" })
	if i < 0 {
		t.Fatal("there is no scenario plan-override")
	}
	for name, test := range map[string]struct {
		caller    func(*http.Request) bool
		user      string
		overrides float64
		seen      bool
	}{
		"an override":                            {caller: byAPIServer, user: scenarios[i].User, overrides: 1},
		"attack: an override that is made up":    {user: scenarios[i].User},
		"a write by OLM":                         {caller: byAPIServer, user: "olm", seen: true},
		"attack: a write by OLM that is made up": {user: "olm"},
	} {
		t.Run(name, func(t *testing.T) {
			s := *scenarios[i]
			s.User = test.user
			existing := slices.Concat(s.Cluster, s.Policies)
			store := storeOf(t, existing...)
			old, object := written(t, &s, existing)
			authorizer := olmidentity.Authorizer(overrideBy{})
			if test.user != "olm" {
				authorizer = allowsAll{&atomic.Int64{}}
			}
			options := optionsOf(Options{Store: store, Authorizer: authorizer, Authenticated: test.caller,
				Catalogs: catalogsOf(t, &s)})
			registry := prometheus.NewRegistry()
			options.Metrics = NewMetrics(registry, store, time.Now)
			registry.MustRegister(olmidentity.NewLastSeen(options.OLM))
			gate := New(options)
			answers(t, gate, &s, old, object)

			values := sampled(t, registry)
			if got := values["opgate_overrides_total plan/override"]; got != test.overrides {
				t.Errorf("%v overrides, want %v", got, test.overrides)
			}
			if got, found := values["opgate_olm_identity_last_seen_timestamp_seconds "+olmUser]; !found ||
				(got > 0) != test.seen {
				t.Errorf("OLM was last seen at %v (%t), want %t", got, found, test.seen)
			}
		})
	}
}

// sampled returns the values of counters and gauges with one label, by name and value of the label.
func sampled(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if len(m.GetLabel()) == 1 {
				values[f.GetName()+" "+m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return values
}
