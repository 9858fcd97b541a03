package compliance

import (
	"testing"

	"github.com/opgate/opgate/olm"
)

// TestInstalledVersion: the status names the version that runs. OLM writes the next one to the Subscription as
// installed before it lets it replace the other.
func TestInstalledVersion(t *testing.T) {
	phase := func(phase string) func(*Installed) { return func(c *Installed) { c.Status.Phase = phase } }
	for _, tt := range []struct {
		name, subscribed string
		csvs             []given
		want             string
	}{
		{
			name:       "OLM parks the upgrade",
			subscribed: "etcd.v1.3.0",
			csvs:       []given{csv("etcd.v1.2.0", phase("Replacing")), csv("etcd.v1.3.0", phase("Pending"))},
			want:       "etcd.v1.2.0",
		},
		{
			name:       "the upgrade is on its way",
			subscribed: "etcd.v1.3.0",
			csvs:       []given{csv("etcd.v1.2.0", phase("Replacing")), csv("etcd.v1.3.0", phase("Installing"))},
			want:       "etcd.v1.3.0",
		},
		{
			name:       "another operator is being replaced",
			subscribed: "etcd.v1.3.0",
			csvs: []given{
				csv("vault.v1.0.0", phase("Replacing"), func(c *Installed) { c.Package = "vault" }),
				csv("etcd.v1.3.0", phase("Pending")),
			},
			want: "etcd.v1.3.0",
		},
		{
			name:       "a copy of what is being replaced elsewhere",
			subscribed: "etcd.v1.3.0",
			csvs: []given{
				csv("etcd.v1.2.0", phase("Replacing"), func(c *Installed) { c.CopiedFrom = "elsewhere" }),
				csv("etcd.v1.3.0", phase("Pending")),
			},
			want: "etcd.v1.3.0",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			installed := subscription("etcd",
				func(s *olm.Subscription) { s.Status.InstalledCSV, s.Status.CurrentCSV = tt.subscribed, tt.subscribed })
			changes := append([]given{group("shop-x7", map[string]any{}, generated), installed, manifest(),
				catalogState("READY")}, tt.csvs...)
			if got := Evaluate(input(changes...)).InstalledVersion; got != tt.want {
				t.Errorf("installed version is %q, want %q", got, tt.want)
			}
		})
	}
}
