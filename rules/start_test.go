package rules

import (
	"strings"
	"testing"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/facts"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
)

var operatorhub = olm.Catalog{Namespace: "olm", Name: "operatorhubio-catalog"}

// etcdVersions has channel alpha with versions 0.9.4 to 0.9.0, and channel old with 0.9.0 and what more there is.
func etcdVersions(old ...string) *catalog.Package {
	entries := func(versions ...string) (list []catalog.Entry) {
		for _, v := range versions {
			list = append(list, catalog.Entry{Name: "etcd.v" + v, Version: v})
		}
		return list
	}
	return &catalog.Package{Name: "etcd", Catalog: operatorhub, DefaultChannel: "alpha", Channels: []catalog.Channel{
		{Name: "alpha", Entries: entries("0.9.4", "0.9.2", "0.9.0")},
		{Name: "old", Entries: append(entries(old...), entries("0.9.0")...)},
	}}
}

func TestStartingCSV(t *testing.T) {
	before := func(version string) *state.InstallRecord {
		return &state.InstallRecord{Namespace: "shop",
			Operators: []state.RecordedOperator{{Package: "etcd", CSV: "etcd.v" + version, Version: version}}}
	}
	limit := constraint.NewSet([]*constraint.Definition{constraint.Define(constraint.Meta{Name: "old"},
		&constraintv1.ConstraintSpec{Constraints: `[{"type":"olm.constraint","value":{"cel":{"rule":"version != '0.9.4'"}}}]`})}, facts.Cluster{Version: "1.36.3"})
	for _, c := range []struct {
		name      string
		policy    func(*spec)
		channel   string
		installed string
		contents  state.NamespaceContents
		unknown   bool
		want      string
	}{
		{name: "a list without the newest", policy: versions("etcd.v0.9.2", "etcd.v0.9.0"), want: "etcd.v0.9.2"},
		{name: "a list with the newest", policy: versions("etcd.v0.9.4"), want: "etcd.v0.9.4"},
		{name: "a list of nothing that the channel has", policy: versions("etcd.v0.9.2"), channel: "old"},
		{name: "a channel that is not known", policy: versions("etcd.v0.9.2"), channel: "beta"},
		{name: "a catalog that is not known", policy: versions("etcd.v0.9.2"), unknown: true},
		{name: "a range", policy: func(s *spec) { s.VersionRange = "<0.9.4" }, want: "etcd.v0.9.2"},
		{name: "everything is allowed", policy: func(*spec) {}},
		{name: "a Constraint", policy: func(*spec) {}, contents: state.NamespaceContents{Constraints: limit},
			want: "etcd.v0.9.2"},
		{name: "it is installed", policy: versions("etcd.v0.9.2"), installed: "etcd.v0.9.0",
			contents: state.NamespaceContents{CSVs: etcdInstalled()}},
		{name: "what was installed is lost, and allowed", policy: versions("etcd.v0.9.2", "etcd.v0.9.0"),
			installed: "etcd.v0.9.2", want: "etcd.v0.9.2"},
		{name: "what was installed is lost, and newer than what is allowed", policy: versions("etcd.v0.9.2"),
			installed: "etcd.v0.9.4"},
		{name: "it was recorded, and is allowed", policy: versions("etcd.v0.9.9", "etcd.v0.9.2"),
			contents: state.NamespaceContents{Record: before("0.9.9")}, want: "etcd.v0.9.9"},
		{name: "it was recorded, and is newer than what is allowed", policy: versions("etcd.v0.9.2"),
			contents: state.NamespaceContents{Record: before("0.9.3")}},
		{name: "it was recorded, and is older", policy: versions("etcd.v0.9.2"),
			contents: state.NamespaceContents{Record: before("0.9.0")}, want: "etcd.v0.9.2"},
		{name: "a policy that forbids",
			policy: func(s *spec) { versions("etcd.v0.9.2")(s); s.ComplianceType = "mustnothave" }},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := policyFor("etcd", c.policy)
			c.contents.Policies, c.contents.Exists = []*operatorpolicy.Policy{p}, true
			pkg := etcdVersions()
			if c.unknown {
				pkg = nil
			}
			offered := Offered{Namespace: state.NewNamespace("shop", c.contents), Policy: p, Package: pkg, Channel: c.channel,
				InstalledCSV: c.installed}
			if got := offered.StartingCSV(); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestStale is about plans that wait, and of which no other one will come while they do.
func TestStale(t *testing.T) {
	subscription := func(pkg, channel, start string) *olm.Subscription {
		s := &olm.Subscription{Metadata: olm.ObjectMeta{Name: pkg},
			Spec: olm.SubscriptionSpec{Package: pkg, Channel: channel,
				Source: operatorhub.Name, SourceNamespace: operatorhub.Namespace, StartingCSV: start}}
		s.Status.InstallPlan.Name = "install-x7"
		return s
	}
	requiring := state.Installed{Bundle: olm.Bundle{Name: "vault.v1.0.0", Package: "vault", Described: true,
		Spec: &olm.CSVSpec{}, Requires: []olm.Capability{{Package: "nats"}}}}
	etcd := subscription("etcd", "alpha", "")
	for _, c := range []struct {
		name     string
		plan     []string
		subs     []*olm.Subscription
		csvs     []state.Installed
		pkg      *catalog.Package
		current  bool
		approved bool
		want     string
	}{
		{name: "what is asked for", plan: []string{"etcd 0.9.4"}, subs: []*olm.Subscription{etcd}, pkg: etcdVersions()},
		{name: "another start", plan: []string{"etcd 0.9.4"},
			subs: []*olm.Subscription{subscription("etcd", "alpha", "etcd.v0.9.2")},
			want: "it installs etcd.v0.9.4, and Subscription etcd starts with etcd.v0.9.2"},
		{name: "another start, approved", plan: []string{"etcd 0.9.4"},
			subs: []*olm.Subscription{subscription("etcd", "alpha", "etcd.v0.9.2")}, approved: true},
		{name: "another start, and something is installed", plan: []string{"etcd 0.9.4"}, csvs: etcdInstalled(),
			subs: []*olm.Subscription{func() *olm.Subscription {
				s := subscription("etcd", "alpha", "etcd.v0.9.2")
				s.Status.InstalledCSV = "etcd.v0.9.0"
				return s
			}()}},
		{name: "another channel", plan: []string{"etcd 0.9.4"},
			subs: []*olm.Subscription{subscription("etcd", "old", "")}, pkg: etcdVersions(),
			want: "it installs etcd.v0.9.4, which channel old of catalog olm/operatorhubio-catalog does not have"},
		{name: "any channel", plan: []string{"etcd 0.9.8"}, subs: []*olm.Subscription{subscription("etcd", "", "")},
			pkg: etcdVersions("0.9.8")},
		{name: "newer than the catalog is known to be", plan: []string{"etcd 0.9.9"}, subs: []*olm.Subscription{etcd},
			pkg: etcdVersions()},
		{name: "withdrawn", plan: []string{"etcd 0.9.9"}, subs: []*olm.Subscription{etcd}, pkg: etcdVersions(),
			current: true, want: "it installs etcd.v0.9.9"},
		{name: "a package that nothing asks for", plan: []string{"etcd 0.9.4", "nats 2.0.0"},
			subs: []*olm.Subscription{etcd},
			want: "it installs nats.v2.0.0 of package nats, which has no Subscription and which nothing requires"},
		{name: "a dependency", plan: []string{"etcd 0.9.4 nats", "nats 2.0.0"}, subs: []*olm.Subscription{etcd}},
		{name: "a dependency of a dependency", plan: []string{"etcd 0.9.4 nats", "nats 2.0.0 redis", "redis 1.0.0"},
			subs: []*olm.Subscription{etcd}},
		{name: "a dependency of what is installed", plan: []string{"etcd 0.9.4", "nats 2.0.0"},
			subs: []*olm.Subscription{etcd}, csvs: []state.Installed{requiring}},
		{name: "what is installed may require it", plan: []string{"etcd 0.9.4", "nats 2.0.0"},
			subs: []*olm.Subscription{etcd}, csvs: etcdInstalled()},
	} {
		t.Run(c.name, func(t *testing.T) {
			plan := pendingPlan(c.plan...)
			plan.Spec.Approved = c.approved
			ns := state.NewNamespace("shop", state.NamespaceContents{Exists: true, Subscriptions: c.subs, CSVs: c.csvs,
				Plans: []*olm.InstallPlan{plan}})
			packages := func(string, string, olm.Catalog) *catalog.Package { return c.pkg }
			got := Stale(StaleInput{Plan: plan, Namespace: ns, Packages: packages, CatalogsCurrent: c.current})
			if !strings.HasPrefix(got, c.want) || c.want == "" && got != "" {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
