package rules

import (
	"strings"
	"testing"
	"time"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/facts"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// holding holds what is deprecated.
func holding(s *spec) { s.Deprecated = policyv1beta2.DeprecatedHold }

// etcdPackage is deprecated as a whole, in one of its channels, and in one version.
func etcdPackage(deprecation string) *catalog.Package {
	return &catalog.Package{Name: "etcd", Catalog: olm.Catalog{Namespace: "olm", Name: "operatorhubio-catalog"},
		DefaultChannel: "stable", Deprecation: deprecation,
		Channels: []catalog.Channel{
			{Name: "stable", Entries: []catalog.Entry{{Name: "etcd.v0.9.4"},
				{Name: "etcd.v0.9.2", Deprecation: "0.9.2 loses data"}}},
			{Name: "old", Deprecation: "old is not maintained",
				Entries: []catalog.Entry{{Name: "etcd.v0.9.4"},
					{Name: "etcd.v0.9.2", Deprecation: "0.9.2 loses data"}}},
		}}
}

// inChannel is a Subscription to etcd in a channel.
func inChannel(channel string) []*olm.Subscription {
	s := subscriptionTo("etcd")
	s.Spec.Channel = channel
	return []*olm.Subscription{s}
}

func TestDeprecated(t *testing.T) {
	twoCatalogs := pendingPlan("etcd 0.9.4")
	second := twoCatalogs.Status.BundleLookups[0]
	second.Catalog.Name = "other"
	twoCatalogs.Status.BundleLookups = append(twoCatalogs.Status.BundleLookups, second)
	for _, c := range []struct {
		name          string
		plan          *olm.InstallPlan
		edit          func(*spec)
		pkg           *catalog.Package
		subscriptions []*olm.Subscription
		want          verdict.Decision
		says          []string
	}{
		{name: "a version that is not", plan: pendingPlan("etcd 0.9.4"), edit: holding, pkg: etcdPackage(""),
			subscriptions: inChannel("stable")},
		{name: "the version", plan: pendingPlan("etcd 0.9.2"), edit: holding, pkg: etcdPackage(""),
			subscriptions: inChannel("stable"),
			want:          verdict.Hold, says: []string{`the version is deprecated ("0.9.2 loses data")`,
				"a version that is not deprecated"}},
		{name: "the channel", plan: pendingPlan("etcd 0.9.4"), edit: holding, pkg: etcdPackage(""),
			subscriptions: inChannel("old"),
			want:          verdict.Hold, says: []string{`channel old is deprecated ("old is not maintained")`,
				"a version from a channel that is not deprecated"}},
		{name: "all three at once", plan: pendingPlan("etcd 0.9.2"), edit: holding, pkg: etcdPackage("etcd has ended"),
			subscriptions: inChannel("old"),
			want:          verdict.Hold, says: []string{"the version is", "channel old is",
				`package etcd is deprecated ("etcd has ended")`, "no version of it"}},
		{name: "allowed", plan: pendingPlan("etcd 0.9.2"), pkg: etcdPackage("etcd has ended"),
			subscriptions: inChannel("old")},
		{name: "named by the policy all the same", plan: pendingPlan("etcd 0.9.2"), pkg: etcdPackage(""),
			subscriptions: inChannel("stable"),
			edit: func(s *spec) {
				holding(s)
				s.Versions, s.Subscription.StartingCSV = []string{"etcd.v0.9.2"}, "etcd.v0.9.2"
			},
			want: verdict.Hold, says: []string{"the version is"}},
		{name: "a channel that the Subscription leaves to the catalog", plan: pendingPlan("etcd 0.9.4"), edit: holding,
			pkg: etcdPackage(""), subscriptions: inChannel("")},
		{name: "a dependency without a Subscription", plan: pendingPlan("etcd 0.9.4"), edit: holding,
			pkg: etcdPackage("")},
		{name: "a deprecated dependency without a Subscription", plan: pendingPlan("etcd 0.9.2"), edit: holding,
			pkg:  etcdPackage(""),
			want: verdict.Hold, says: []string{"the version is"}},
		{name: "the package is not known", plan: pendingPlan("etcd 0.9.4"), edit: holding,
			subscriptions: inChannel("stable"),
			want:          verdict.Hold, says: []string{"which may be deprecated",
				"in catalog olm/operatorhubio-catalog has it"}},
		{name: "the package server lags behind", plan: pendingPlan("etcd 0.9.5"), edit: holding, pkg: etcdPackage(""),
			subscriptions: inChannel("stable"),
			want:          verdict.Hold, says: []string{"which may be deprecated"}},
		{name: "two catalogs claim it", plan: twoCatalogs, pkg: etcdPackage(""), subscriptions: inChannel("stable"),
			edit: func(s *spec) { holding(s); anyCatalog(s) }, want: verdict.Hold,
			says: []string{"which may be deprecated", "in its catalog"}},
		{name: "another operator's policy", plan: pendingPlan("vault 0.1.9"), edit: holding,
			pkg: etcdPackage("etcd has ended")},
		{name: "a policy that forbids it anyway", plan: pendingPlan("etcd 0.9.4"), pkg: etcdPackage("etcd has ended"),
			subscriptions: inChannel("old"),
			edit: func(s *spec) {
				holding(s)
				s.ComplianceType, s.Versions = policyv1beta2.MustNotHave, []string{"etcd.v0.9.2"}
			}},
		{name: "a value that is neither", plan: pendingPlan("etcd 0.9.4"), pkg: etcdPackage(""),
			subscriptions: inChannel("stable"),
			edit:          func(s *spec) { s.Deprecated = "hold" }, want: verdict.Hold,
			says: []string{"spec.deprecated is not valid"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			contents := state.NamespaceContents{Policies: []*operatorpolicy.Policy{policyFor("etcd", c.edit)},
				Subscriptions: c.subscriptions, Plans: []*olm.InstallPlan{c.plan}}
			var packages state.Packages
			if c.pkg != nil {
				packages = func(pkg, _ string, source olm.Catalog) *catalog.Package {
					if pkg != c.pkg.Name || source != c.pkg.Catalog {
						return nil
					}
					return c.pkg
				}
			}
			v := JudgePlan(PlanInput{Plan: c.plan, Namespace: carrier.Read(state.NewNamespace("shop", contents), packages, nil)})
			if v.Decision != c.want {
				t.Errorf("%s, want %s: %s", v.Decision, c.want, v.Refusal())
			}
			for _, text := range c.says {
				if !strings.Contains(v.Refusal(), text) {
					t.Errorf("%s\ndoes not say %s", v.Refusal(), text)
				}
			}
		})
	}
}

// TestPackagesAreReadOnce: what no rule judges by is not asked for, and a finished plan is not judged any more.
func TestPackagesAreReadOnce(t *testing.T) {
	complete := pendingPlan("etcd 0.9.2")
	complete.Status.Phase = olm.PhaseComplete
	reading := constraint.NewSet([]*constraint.Definition{constraint.Define(constraint.Meta{Name: "maintained"},
		&constraintv1.ConstraintSpec{Constraints: `[{"type":"olm.constraint","value":{"cel":{"rule":"deprecated.version == \"\""}}}]`})}, facts.Cluster{})
	for _, c := range []struct {
		name     string
		contents state.NamespaceContents
		want     string
	}{
		{name: "nothing judges by it",
			contents: state.NamespaceContents{Policies: []*operatorpolicy.Policy{policyFor("etcd", nil)}}},
		{name: "a policy", contents: state.NamespaceContents{Policies: []*operatorpolicy.Policy{policyFor("etcd", holding)}},
			want: "etcd/etcd.v0.9.4"},
		{name: "a Constraint", contents: state.NamespaceContents{Constraints: reading},
			want: "etcd/etcd.v0.9.4 vault/vault.v0.1.9"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var asked []string
			c.contents.Plans = []*olm.InstallPlan{complete, pendingPlan("etcd 0.9.4", "vault 0.1.9")}
			packages := func(pkg, csv string, _ olm.Catalog) *catalog.Package {
				asked = append(asked, pkg+"/"+csv)
				return nil
			}
			ns := carrier.Read(state.NewNamespace("shop", c.contents), packages, nil)
			if got := strings.Join(asked, " "); got != c.want {
				t.Errorf("asked for %q, want %q", got, c.want)
			}
			if got := ns.JudgesByPackage("etcd"); got != (c.want != "") {
				t.Errorf("judges by package etcd is %v", got)
			}
		})
	}
}

// TestDeprecatedIsApprovedByHand: OLM must not approve before the catalog is read.
func TestDeprecatedIsApprovedByHand(t *testing.T) {
	if mode, because := (*state.Namespace)(nil).Approval(policyFor("etcd", holding)); mode != olm.ApprovalManual ||
		because != "spec.deprecated is Hold" {
		t.Errorf("%s, %s", mode, because)
	}
	named := policyFor("etcd", func(s *spec) { holding(s); anyCatalog(s); s.Versions = []string{"etcd.v0.9.2"} })
	if named.PassesByName("etcd.v0.9.2") {
		t.Error("a plan that is approved from the start passes")
	}
}

// TestDeprecatedIsNoEscape: after an outage it is not known any more what the catalog said of a plan that has finished.
func TestDeprecatedIsNoEscape(t *testing.T) {
	constraints := constraint.NewSet([]*constraint.Definition{constraint.Define(constraint.Meta{Name: "maintained"},
		&constraintv1.ConstraintSpec{Constraints: `[{"type":"olm.constraint","value":{"cel":{"rule":"deprecated.version == \"\""}}}]`})}, facts.Cluster{Version: "1.36.3"})
	plan := installing(t, etcdSpec)
	ns := state.NewNamespace("shop", state.NamespaceContents{Exists: true, Constraints: constraints,
		Plans: []*olm.InstallPlan{plan}})
	if reasons := RefusedSteps(plan, ns, time.Time{}); len(reasons) != 1 || reasons[0].Decision != verdict.Hold {
		t.Errorf("while it runs: %+v", reasons)
	}
	plan.Status.Phase = olm.PhaseComplete
	if reasons, known := JudgeEscape(written(t, etcdSpec), ns); !known || len(reasons) > 0 {
		t.Errorf("known is %v, %+v", known, reasons)
	}
}
