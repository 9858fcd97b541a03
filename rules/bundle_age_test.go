package rules

import (
	"strings"
	"testing"
	"time"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/facts"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// TestMinimumAge judges an approval, by a user and by the loop, around the time at which a version is old enough.
func TestMinimumAge(t *testing.T) {
	seen := momentOf(t, "2026-12-01T00:00:00Z")
	ready := seen.Add(168 * time.Hour)
	hub := olm.Catalog{Namespace: "olm", Name: "operatorhubio-catalog"}
	const image = "sha256:0a1b2c3d0a1b2c3d0a1b2c3d0a1b2c3d0a1b2c3d0a1b2c3d0a1b2c3d0a1b2c3d"
	for name, test := range map[string]struct {
		now  time.Time
		edit func(*policyv1beta2.OperatorPolicySpec)
		// unrecorded is set for a catalog without a record, unserved for one without a known image, elsewhere for one
		// that OLM connects to at an address.
		unrecorded, unserved, elsewhere bool
		// held is a part of the refusal, "" for none; next is when the loop judges again, zero for never.
		held string
		next time.Time
	}{
		"a second too young": {now: ready.Add(-time.Second), next: ready,
			held: "catalog olm/operatorhubio-catalog has offered it since 2026-12-01T00:00:00Z, and it is old enough (168h) at 2026-12-08T00:00:00Z"},
		"old enough":            {now: ready},
		"the time is not known": {held: "waits until the time is known", next: ready},
		"not recorded": {now: ready, unrecorded: true,
			held: "there is no record yet of when catalog olm/operatorhubio-catalog first offered it"},
		"a catalog that runs no known image": {now: ready, unrecorded: true, unserved: true,
			held: "it is not known which image catalog olm/operatorhubio-catalog runs"},
		"a recorded catalog while it runs no known image": {now: ready, unserved: true},
		"a recorded catalog that got an address": {now: ready, elsewhere: true,
			held: "catalog olm/operatorhubio-catalog is not served from an image"},
		"urgent": {now: seen, next: ready,
			edit: func(s *policyv1beta2.OperatorPolicySpec) { s.Urgent = []string{"etcd.v0.9.4"} }},
		"another version is urgent": {now: seen, next: ready, held: "has offered it since",
			edit: func(s *policyv1beta2.OperatorPolicySpec) { s.Urgent = []string{"etcd.v0.9.5"} }},
		"urgent with other contents": {now: seen, next: ready, held: "has offered it since",
			edit: func(s *policyv1beta2.OperatorPolicySpec) {
				s.Urgent = []string{"etcd.v0.9.4@sha256:" + strings.Repeat("a", 64)}
			}},
		"an age that cannot be read": {now: ready, held: "spec.minimumAge is not valid",
			edit: func(s *policyv1beta2.OperatorPolicySpec) { s.MinimumAge = "7d" }},
		"an age of nothing": {now: ready, held: "spec.minimumAge is not valid",
			edit: func(s *policyv1beta2.OperatorPolicySpec) { s.MinimumAge = "0s" }},
		"without an age": {now: seen, edit: func(s *policyv1beta2.OperatorPolicySpec) { s.MinimumAge = "" }},
	} {
		t.Run(name, func(t *testing.T) {
			around := facts.Cluster{Catalogs: map[olm.Catalog]*olm.CatalogSource{hub: {Spec: olm.CatalogSourceSpec{Image: "registry.example/catalog:latest"}}}}
			if test.elsewhere {
				around.Catalogs[hub].Spec.Address = "catalog.example:50051"
			}
			around.WithoutServices = true
			if !test.unserved {
				around.AddServed(hub, image)
			}
			if !test.unrecorded {
				around.AddHistory(hub, &catalog.History{Seen: catalog.Seen{"etcd": {"etcd.v0.9.4": seen.Unix()}}})
			}
			p := policyFor("etcd", func(s *policyv1beta2.OperatorPolicySpec) {
				s.MinimumAge = "168h"
				if test.edit != nil {
					test.edit(s)
				}
			})
			plan := pendingPlan("etcd 0.9.4")
			follows := &olm.Subscription{Metadata: olm.ObjectMeta{Namespace: "shop", Name: "etcd"},
				Spec: olm.SubscriptionSpec{Package: "etcd", InstallPlanApproval: olm.ApprovalManual}}
			follows.Status.InstallPlan.Name = plan.Metadata.Name
			ns := state.NewNamespace("shop", state.NamespaceContents{Policies: []*operatorpolicy.Policy{p},
				Plans:         []*olm.InstallPlan{plan},
				Subscriptions: []*olm.Subscription{follows}, Exists: true, Facts: &around})
			v := JudgePlan(PlanInput{Plan: plan, Namespace: ns, Now: test.now})
			if (v.Decision == verdict.Allow) != (test.held == "") || !strings.Contains(v.Refusal(), test.held) {
				t.Errorf("%v: %q, want %q", v.Decision, v.Refusal(), test.held)
			}
			if loop := JudgeApproval(ApprovalInput{Plan: plan, Namespace: ns, Now: test.now}); loop.IsCandidate &&
				loop.Verdict.Refusal() != v.Refusal() {
				t.Errorf("the loop judges %q, a user's approval is judged %q", loop.Verdict.Refusal(), v.Refusal())
			}
			if next := NextChange(ns, test.now); !next.Equal(test.next) {
				t.Errorf("judged again at %s, want %s", next, test.next)
			}
			mode, _ := ns.Approval(p)
			if aged := p.Age.Holds() || p.Unreadable() != ""; (mode == olm.ApprovalManual) != aged {
				t.Errorf("installPlanApproval is %s: OLM would approve young versions", mode)
			}
		})
	}
}

// TestAgeWithoutEffect has ages of which the author is warned, or that are refused.
func TestAgeWithoutEffect(t *testing.T) {
	for name, test := range map[string]struct {
		edit          func(*policyv1beta2.OperatorPolicySpec)
		warned, field string
	}{
		"mustnothave": {warned: "spec.minimumAge has no effect", edit: func(s *policyv1beta2.OperatorPolicySpec) {
			s.MinimumAge, s.ComplianceType = "1h", policyv1beta2.MustNotHave
		}},
		"urgent alone": {warned: "spec.urgent has no effect",
			edit: func(s *policyv1beta2.OperatorPolicySpec) { s.Urgent = []string{"etcd.v1"} }},
		"two years": {field: "spec.minimumAge",
			edit: func(s *policyv1beta2.OperatorPolicySpec) { s.MinimumAge = "17520h" }},
		"a template": {field: "spec.urgent[0]",
			edit: func(s *policyv1beta2.OperatorPolicySpec) { s.Urgent = []string{"{{ x }}"} }},
		"too many urgent versions": {field: "spec.urgent", edit: func(s *policyv1beta2.OperatorPolicySpec) {
			s.Urgent = []string{many(65)}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			v := JudgeOperatorPolicy(OperatorPolicyInput{Policy: policyFor("etcd", test.edit),
				Namespace: func(string) *state.Namespace { return nil }})
			if test.field != "" && (len(v.Reasons) == 0 || v.Reasons[0].Field != test.field) {
				t.Errorf("%v, want %s", v.Reasons, test.field)
			}
			if got := strings.Join(v.WarningTexts(), "\n"); !strings.Contains(got, test.warned) {
				t.Errorf("%q, want %q", got, test.warned)
			}
		})
	}
}
