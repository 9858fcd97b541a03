package rules

import (
	"strings"
	"testing"
	"time"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// TestJudgeInstalled judges operators that are there, however they came.
func TestJudgeInstalled(t *testing.T) {
	source := olm.Catalog{Namespace: "olm", Name: "operatorhubio-catalog"}
	etcd := state.Installed{Bundle: olm.Bundle{Name: "etcd.v0.9.4", Package: "etcd", Version: "0.9.4", Described: true, Spec: &olm.CSVSpec{}}}
	subscription := &olm.Subscription{Metadata: olm.ObjectMeta{Namespace: "shop", Name: "etcd"}}
	subscription.Spec.Package, subscription.Spec.Source, subscription.Spec.SourceNamespace = "etcd", source.Name,
		source.Namespace
	subscription.Status.InstalledCSV, subscription.Status.CurrentCSV = etcd.Name, etcd.Name
	foreign := *subscription
	foreign.Spec.Source = "evil"
	ran := pendingPlan("etcd 0.9.4")
	ran.Status.BundleLookups[0].Path = "quay.io/x/etcd@" + digestA
	ran.Spec.Approved, ran.Status.Phase = true, olm.PhaseComplete
	unread := etcd
	unread.Package, unread.Version, unread.Described = "", "", false
	fromOLM := *etcd.Spec
	for _, c := range []struct {
		name      string
		policy    *operatorpolicy.Policy
		installed state.Installed
		follows   *olm.Subscription
		plans     []*olm.InstallPlan
		set       *constraint.Set
		want      verdict.Decision
		// reason is in the first reason, disposition that of the operator.
		reason      string
		disposition verdict.Disposition
	}{
		{name: "listed", policy: policyFor("etcd", versions("etcd.v0.9.4")), installed: etcd, follows: subscription,
			disposition: verdict.Allowed},
		{
			name: "not listed any more", policy: policyFor("etcd", versions("etcd.v0.9.5")), installed: etcd,
			follows: subscription,
			want:    verdict.Deny, reason: "etcd.v0.9.4 is not allowed by OperatorPolicy policies/etcd (bundle/version): " +
				"allowed is etcd.v0.9.5", disposition: verdict.Denied,
		},
		{
			name: "upgrades are not approved, which says nothing of what is there", installed: etcd,
			follows: subscription,
			policy:  policyFor("etcd", func(s *spec) { s.UpgradeApproval = "None" }), disposition: verdict.Allowed,
		},
		{
			name: "the Subscription was turned to another catalog", policy: policyFor("etcd", nil), installed: etcd,
			follows: &foreign,
			want:    verdict.Deny, reason: "from catalog olm/evil is not allowed", disposition: verdict.Denied,
		},
		{
			name: "an orphan of an unknown catalog", policy: policyFor("etcd", nil), installed: etcd,
			want: verdict.Hold, reason: "the catalog of etcd.v0.9.4 is not known", disposition: verdict.Held,
		},
		{
			name: "forbidden", policy: policyFor("etcd", func(s *spec) { s.ComplianceType = "mustnothave" }),
			installed: etcd, follows: subscription,
			want: verdict.Deny, reason: "etcd.v0.9.4 is forbidden", disposition: verdict.Denied,
		},
		{
			name: "a digest, and the plan that brought it", policy: policyFor("etcd", versions("etcd.v0.9.4@"+digestA)),
			installed: etcd, follows: subscription,
			plans: []*olm.InstallPlan{ran}, disposition: verdict.Allowed,
		},
		{
			name:   "a digest, and nothing that shows the image",
			policy: policyFor("etcd", versions("etcd.v0.9.4@"+digestA)), installed: etcd, follows: subscription,
			want: verdict.Deny, reason: "which does not come from a bundle image", disposition: verdict.Denied,
		},
		{
			name: "another package", policy: policyFor("redis", nil), installed: etcd, follows: subscription,
			disposition: verdict.Ungoverned,
		},
		{
			name: "an unknown package beside a policy", policy: policyFor("etcd", nil), installed: unread,
			want: verdict.Hold, reason: "the package of etcd.v0.9.4 is not known", disposition: verdict.Held,
		},
		{
			name: "a Constraint", installed: state.Installed{Bundle: olm.Bundle{Name: etcd.Name, Package: "etcd", Version: "0.9.4",
				Described: true, Spec: &fromOLM}}, follows: subscription,
			set:  under(ruleOf("no-etcd", `packageName != "etcd"`, "no etcd", constraint.Require)),
			want: verdict.Deny, reason: "etcd.v0.9.4 is not allowed by Constraint no-etcd (bundle/constraint)",
			disposition: verdict.Denied,
		},
	} {
		in := state.NamespaceContents{CSVs: []state.Installed{c.installed}, Plans: c.plans, Exists: true, Facts: aroundKubernetes,
			Constraints: c.set}
		if c.policy != nil {
			in.Policies = []*operatorpolicy.Policy{c.policy}
		}
		if c.follows != nil {
			in.Subscriptions = []*olm.Subscription{c.follows}
		}
		v, here := bundle.JudgeInstalled(state.NewNamespace("shop", in), c.installed.Name, time.Time{})
		if !here || v.Decision != c.want || len(v.CSVs) != 1 || v.CSVs[0].Disposition != c.disposition {
			t.Errorf("%s: here %t, %+v", c.name, here, v)
			continue
		}
		if (c.reason == "") != (len(v.Reasons) == 0) || c.reason != "" &&
			!strings.Contains(v.Reasons[0].Message, c.reason) {
			t.Errorf("%s: %q, want %q", c.name, v.Refusal(), c.reason)
		}
	}
	if _, here := bundle.JudgeInstalled(state.NewNamespace("shop",
		state.NamespaceContents{Subscriptions: []*olm.Subscription{subscription}}), etcd.Name, time.Time{}); here {
		t.Error("a ClusterServiceVersion that only a Subscription names is judged")
	}
}

// TestInspect finds what is installed and what waits, and leaves out outdated and running plans.
func TestInspect(t *testing.T) {
	plan := func(name string, edit func(*olm.InstallPlan)) *olm.InstallPlan {
		p := pendingPlan("etcd 0.9.4")
		p.Metadata.Name = name
		if edit != nil {
			edit(p)
		}
		return p
	}
	follows := subscribed("etcd", "etcd.v0.9.4", "etcd.v0.9.2")
	follows.Status.InstallPlan.Name = "waits"
	ns := state.NewNamespace("shop", state.NamespaceContents{
		Policies: []*operatorpolicy.Policy{policyFor("etcd",
			func(s *spec) { versions("etcd.v0.9.2")(s); anyCatalog(s) })},
		Subscriptions: []*olm.Subscription{follows},
		CSVs: []state.Installed{{Bundle: olm.Bundle{Name: "etcd.v0.9.2", Package: "etcd", Version: "0.9.2", Described: true,
			Spec: &olm.CSVSpec{}}}},
		Plans: []*olm.InstallPlan{
			plan("outdated", nil), plan("waits", nil),
			plan("runs", func(p *olm.InstallPlan) { p.Spec.Approved, p.Status.Phase = true, olm.PhaseInstalling }),
		},
		Exists: true,
	})
	got := Inspect(ns, time.Time{})
	if len(got) != 2 || got[0].Kind != olm.KindClusterServiceVersion || got[0].Verdict.Decision != verdict.Allow ||
		got[1].Kind != olm.KindInstallPlan || got[1].Name != "waits" || got[1].Verdict.Decision != verdict.Deny {
		t.Errorf("%+v", got)
	}
	if got := Inspect(nil, time.Time{}); got != nil {
		t.Errorf("an unknown namespace: %+v", got)
	}
}
