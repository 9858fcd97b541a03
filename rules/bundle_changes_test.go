package rules

import (
	"strings"
	"testing"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/rules/change"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/facts"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// TestConstraintOnChange: a Constraint judges every package by what its plan changes.
func TestConstraintOnChange(t *testing.T) {
	constraints := constraint.NewSet([]*constraint.Definition{constraint.Define(constraint.Meta{Name: "reviewed"},
		&constraintv1.ConstraintSpec{Constraints: `[{"type":"olm.constraint","value":{"cel":{"rule":"change.first || change.risky.size() == 0"}}}]`})}, facts.Cluster{Version: "1.36.3"})
	harmless := etcdChange(func(s *change.Set) { s.Differences = differences[1:] })
	for _, c := range []struct {
		name    string
		changes state.Changes
		first   bool
		want    verdict.Decision
		says    string
	}{
		{name: "not read yet", changes: func(*olm.InstallPlan, []state.Replacement) *state.PlanChanges { return nil },
			want: verdict.Hold, says: "the changes of what is installed are not known"},
		{name: "no one reads contents", want: verdict.Hold},
		{name: "cannot be read", changes: reading(nil, etcdChange(func(s *change.Set) { s.Fault = "gone" })),
			want: verdict.Hold},
		{name: "a risky change", changes: reading(nil, etcdChange(nil)), want: verdict.Deny},
		{name: "another change", changes: reading(nil, harmless)},
		{name: "a first installation", first: true,
			changes: reading(nil, etcdChange(func(s *change.Set) { s.From, s.FromVersion = "", "" }))},
	} {
		t.Run(c.name, func(t *testing.T) {
			plan := pendingPlan("etcd 0.9.2")
			contents := state.NamespaceContents{Exists: true, Constraints: constraints, Plans: []*olm.InstallPlan{plan}}
			if !c.first {
				contents.CSVs = etcdInstalled()
			}
			v := JudgePlan(PlanInput{Plan: plan, Namespace: carrier.Read(state.NewNamespace("shop", contents), nil, c.changes)})
			if v.Decision != c.want || !strings.Contains(v.Refusal(), c.says) {
				t.Errorf("%s, want %s: %s", v.Decision, c.want, v.Refusal())
			}
		})
	}
}

// TestPlanThatInstalled: what the installed version brought is read from its plan, and from none if that may be a
// forged one (threat O49).
func TestPlanThatInstalled(t *testing.T) {
	plan := func(name string, change func(*olm.InstallPlan)) *olm.InstallPlan {
		p := &olm.InstallPlan{}
		p.Metadata.Name, p.Metadata.UID = name, name
		p.Spec.Approved, p.Status.Phase = true, olm.PhaseComplete
		p.Status.Steps = olm.Steps{{Resolving: "etcd.v1", Status: "Created",
			Resource: olm.StepResource{Kind: olm.KindClusterServiceVersion, Name: "etcd.v1"}}}
		if change != nil {
			change(p)
		}
		return p
	}
	at := func(time string) func(*olm.InstallPlan) {
		return func(p *olm.InstallPlan) { p.Metadata.CreationTimestamp = "2026-11-24T" + time + "Z" }
	}
	since := func(time string, adopted bool) *state.InstallRecord {
		return &state.InstallRecord{Since: "2026-11-24T" + time + "Z",
			Operators: []state.RecordedOperator{{Package: "etcd", CSV: "etcd.v1", Adopted: adopted}}}
	}
	for _, c := range []struct {
		name   string
		plans  []*olm.InstallPlan
		record *state.InstallRecord
		want   string
	}{
		{name: "none"},
		{name: "attack: planted before the record began, and the only one left",
			plans: []*olm.InstallPlan{plan("a", at("10:00:00"))}, record: since("10:00:01", false)},
		{name: "attack: planted before the record began",
			plans:  []*olm.InstallPlan{plan("a", at("10:00:00")), plan("b", at("10:00:05"))},
			record: since("10:00:01", false), want: "b"},
		{name: "control: in the second in which the record began", plans: []*olm.InstallPlan{plan("a", at("10:00:01"))},
			record: since("10:00:01", false), want: "a"},
		{name: "control: what it installed was adopted", plans: []*olm.InstallPlan{plan("a", at("10:00:00"))},
			record: since("10:00:01", true), want: "a"},
		{name: "one", plans: []*olm.InstallPlan{plan("a", nil)}, want: "a"},
		{name: "one that found it",
			plans: []*olm.InstallPlan{plan("a", func(p *olm.InstallPlan) { p.Status.Steps[0].Status = "Present" })},
			want:  "a"},
		{name: "a second one that claims it", plans: []*olm.InstallPlan{plan("a", nil), plan("b", nil)}},
		{name: "not complete", plans: []*olm.InstallPlan{plan("a",
			func(p *olm.InstallPlan) { p.Status.Phase = olm.PhaseInstalling })}},
		{name: "not approved", plans: []*olm.InstallPlan{plan("a",
			func(p *olm.InstallPlan) { p.Spec.Approved = false })}},
		{name: "not written", plans: []*olm.InstallPlan{plan("a",
			func(p *olm.InstallPlan) { p.Status.Steps[0].Status = "Unknown" })}},
		{name: "for another bundle",
			plans: []*olm.InstallPlan{plan("a",
				func(p *olm.InstallPlan) { p.Status.Steps[0].Resolving = "vault.v1" })}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := state.NewNamespace("shop", state.NamespaceContents{Exists: true, Plans: c.plans,
				Record: c.record}).PlanThatInstalled("etcd.v1"); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
