package serve

import (
	"testing"

	"github.com/opgate/opgate/certs"
)

// TestProfiles: profiles are served only where they were asked for, and beside metrics that clients have to
// authenticate for.
func TestProfiles(t *testing.T) {
	source, _, err := certs.SelfSigned("localhost")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name     string
		options  Options
		profiles bool
		secure   bool
	}{
		{name: "by default", options: Options{MetricsAddress: ":0"}},
		{name: "secure metrics alone", options: Options{MetricsAddress: ":0", SecureMetrics: true}, secure: true},
		{name: "asked for", options: Options{MetricsAddress: ":0", SecureMetrics: true, Profiling: true}, secure: true,
			profiles: true},
		{name: "attack: without authentication", options: Options{MetricsAddress: ":0", Profiling: true}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := metricsOptions(&test.options, clients{}, source)
			if _, served := got.ExtraHandlers["/debug/pprof/"]; served != test.profiles {
				t.Errorf("profiles are served: %t, want %t", served, test.profiles)
			}
			if got.SecureServing != test.secure || (got.FilterProvider != nil) != test.secure {
				t.Errorf("secure is %t, with a filter %t, want %t", got.SecureServing, got.FilterProvider != nil,
					test.secure)
			}
			if _, served := got.ExtraHandlers["/debug/pprof/cmdline"]; served {
				t.Error("the command line is served")
			}
		})
	}
}
