package rules

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/rules/evidence"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// The times of these tests: what ends at noon, a second before, and noon.
const (
	noon     = "2026-12-01T12:00:00Z"
	before   = "2026-12-01T11:59:59Z"
	evening  = "2026-12-01T19:00:00+01:00"
	markNoon = "ended " + noon
)

// TestConsentEnds judges an approval by a consent with an end.
func TestConsentEnds(t *testing.T) {
	digest := etcdChange(nil).Digest()
	for _, c := range []struct {
		name, expires, now string
		// ended is a part of the refusal; empty if the consent counts.
		ended string
	}{
		{name: "without an end", now: noon},
		{name: "without an end, the time is not known"},
		{name: "a second before", expires: noon, now: before},
		{name: "at the end", expires: noon, now: noon, ended: "(the consent to it ended at 2026-12-01T12:00:00Z; " +
			"allowed in annotation opgate.io/consent-expires is a later time, as in RFC 3339"},
		{name: "in another zone", expires: evening, now: noon},
		{name: "the time is not known", expires: noon, ended: "and the time is not known"},
		{name: "the leader has seen the end, and the clock is behind", expires: markNoon, now: before,
			ended: "(the consent to it ended at 2026-12-01T12:00:00Z;"},
		{name: "ended by a user", expires: "ended", now: before, ended: "(the consent to it ended;"},
		{name: "no time", expires: "tomorrow", now: before, ended: `has an end that cannot be read, "tomorrow"`},
		{name: "a day without a time", expires: "2026-12-02", now: before, ended: "cannot be read"},
		{name: "a leap second", expires: "2026-12-31T23:59:60Z", now: before, ended: "cannot be read"},
		{name: "blanks", expires: " ", now: before, ended: "cannot be read"},
	} {
		t.Run(c.name, func(t *testing.T) {
			plan := consentedPlan(digest)
			plan.Metadata.Annotations.ConsentExpires = c.expires
			ns := carrier.Read(state.NewNamespace("shop", state.NamespaceContents{Policies: []*operatorpolicy.Policy{policyFor("etcd", reviewing(holdPermissions))},
				CSVs: etcdInstalled(), Plans: []*olm.InstallPlan{plan}}), nil, reading(nil, etcdChange(nil)))
			v := JudgePlan(PlanInput{Plan: plan, Namespace: ns, Now: timeOf(t, c.now)})
			if (v.Decision == verdict.Allow) != (c.ended == "") || !strings.Contains(v.Refusal(), c.ended) {
				t.Errorf("%s: %s\nwant %q", v.Decision, v.Refusal(), c.ended)
			}
			if c.ended != "" && !strings.Contains(v.Refusal(), "accept "+digest) {
				t.Errorf("%s has no digest", v.Refusal())
			}
		})
	}
}

// timeOf returns a time, zero for "".
func timeOf(t *testing.T, value string) time.Time {
	t.Helper()
	if value == "" {
		return time.Time{}
	}
	return momentOf(t, value)
}

// TestConsentEndIsWritten writes the end of a consent: a later one needs the right to consent.
func TestConsentEndIsWritten(t *testing.T) {
	digest := etcdChange(nil).Digest()
	const passed = `annotation opgate.io/consent-expires is not allowed: the consent ended at 2026-12-01T12:00:00Z (plan/consent-right): ` +
		`allowed in annotation opgate.io/consent-expires is a later time`
	for _, c := range []struct {
		name, old, expires string
		added              bool // the digest, with the end
		asked              bool
		refused            string
	}{
		{name: "consent with an end", added: true, expires: evening, asked: true},
		{name: "consent with an end that has come", added: true, expires: noon, asked: true, refused: passed},
		{name: "consent where an end was planted before", added: true, old: noon, expires: noon, asked: true,
			refused: passed},
		{name: "consent that says that it has ended", added: true, expires: markNoon, asked: true,
			refused: "the consent ended at"},
		{name: "consent with no time", added: true, expires: "tomorrow", asked: true,
			refused: `annotation opgate.io/consent-expires is not a time, "tomorrow" (plan/consent-right)`},
		{name: "an end that is no time", expires: "tomorrow", refused: "is not a time"},
		{name: "an end", expires: evening},
		{name: "an earlier end", old: evening, expires: noon},
		{name: "attack: a later end", old: evening, expires: "2027-12-01T12:00:00Z", asked: true},
		{name: "attack: no end", old: evening, asked: true},
		{name: "attack: a later end after the end", old: noon, expires: evening, asked: true},
		{name: "attack: the mark is removed", old: markNoon, expires: evening, asked: true},
		{name: "attack: the mark of another end", old: markNoon, expires: "ended never"},
		{name: "attack: what cannot be read becomes a time", old: "tomorrow", expires: evening, asked: true},
		{name: "the leader marks the end", old: noon, expires: markNoon},
		{name: "the same in another zone", old: evening, expires: "2026-12-01T18:00:00Z"},
	} {
		t.Run(c.name, func(t *testing.T) {
			old := pendingPlan("etcd 0.9.2")
			if !c.added {
				old = consentedPlan(digest)
			}
			old.Metadata.Annotations.ConsentExpires = c.old
			in := annotate(old, digest, "", false)
			in.New.Metadata.Annotations.ConsentExpires = c.expires
			in.Now = momentOf(t, "2026-12-01T13:00:00Z")
			in.Namespace = carrier.Read(state.NewNamespace("shop", state.NamespaceContents{Policies: []*operatorpolicy.Policy{policyFor("etcd", reviewing(holdPermissions))},
				CSVs: etcdInstalled(), Plans: []*olm.InstallPlan{old}}), nil, reading(nil, etcdChange(nil)))
			if got := in.ConsentAsked(); got != c.asked {
				t.Errorf("consent asked is %v", got)
			}
			v := JudgePlanUpdate(in)
			if (v.Decision == verdict.Allow) != (c.refused == "") || !strings.Contains(v.Refusal(), c.refused) {
				t.Errorf("%s: %s\nwant %q", v.Decision, v.Refusal(), c.refused)
			}
		})
	}
}

// TestConsentEndCountsAtOnce: an approval is judged by the end that the same write sets.
func TestConsentEndCountsAtOnce(t *testing.T) {
	digest := etcdChange(nil).Digest()
	old := consentedPlan(digest)
	in := annotate(old, digest, "", true)
	in.New.Metadata.Annotations.ConsentExpires, in.Now = "ended", momentOf(t, noon)
	in.Namespace = carrier.Read(state.NewNamespace("shop", state.NamespaceContents{Policies: []*operatorpolicy.Policy{policyFor("etcd", reviewing(holdPermissions))},
		CSVs: etcdInstalled(), Plans: []*olm.InstallPlan{old}}), nil, reading(nil, etcdChange(nil)))
	if v := JudgePlanUpdate(in); v.Decision != verdict.Hold || v.Reasons[0].Rule != bundle.RuleConsent {
		t.Errorf("%s: %s", v.Decision, v.Refusal())
	}
}

// TestOverrideAskedWithAnEnd reads the override of an approval.
func TestOverrideAskedWithAnEnd(t *testing.T) {
	for _, c := range []struct{ name, expires, now, until, ended string }{
		{name: "without an end", now: noon},
		{name: "with an end", expires: evening, now: noon, until: " until 2026-12-01T19:00:00+01:00"},
		{name: "that has come", expires: noon, now: noon, until: " until 2026-12-01T12:00:00Z",
			ended: "it ended at 2026-12-01T12:00:00Z; " +
				"allowed in annotation opgate.io/override-expires is a later time, as in RFC 3339, such as 2026-12-15T00:00:00Z, or none"},
		{name: "that cannot be read", expires: "soon", now: noon,
			ended: `it has an end that cannot be read, "soon"; allowed in`},
		{name: "the time is not known", expires: noon, until: " until 2026-12-01T12:00:00Z",
			ended: "it ends at 2026-12-01T12:00:00Z, and the time is not known; allowed in"},
	} {
		old := pendingPlan("etcd 0.9.4")
		in := PlanUpdateInput{New: &olm.InstallPlanHead{Spec: olm.InstallPlanSpec{Approved: true}}, Old: old,
			Now: timeOf(t, c.now)}
		in.New.Metadata.Annotations.OverrideReason, in.New.Metadata.Annotations.OverrideExpires = "ticket 77", c.expires
		asked := in.OverrideAsked()
		if asked.Reason != "ticket 77" || asked.Until != c.until || !strings.HasPrefix(asked.Ended, c.ended) ||
			(asked.Ended == "") != (c.ended == "") {
			t.Errorf("%s: %+v", c.name, asked)
		}
	}
}

// TestOverrideEndIsKept: nothing prolongs an override, or opens one again that has ended.
func TestOverrideEndIsKept(t *testing.T) {
	for _, c := range []struct {
		name, old, expires string
		removed, refused   bool // the reason is removed
		unapproved         bool
	}{
		{name: "unchanged", old: noon, expires: noon},
		{name: "ended now", old: evening, expires: "ended"},
		{name: "the leader marks the end", old: noon, expires: markNoon},
		{name: "removed with its reason", old: noon, removed: true},
		{name: "attack: the mark of a later end", old: noon, expires: "ended " + evening, refused: true},
		{name: "attack: prolonged", old: noon, expires: evening, refused: true},
		{name: "attack: without an end", old: noon, refused: true},
		{name: "attack: opened again", old: markNoon, expires: evening, refused: true},
		{name: "attack: opened again, without an end", old: markNoon, refused: true},
		{name: "attack: prolonged while the plan is not approved", old: noon, expires: evening, unapproved: true,
			refused: true},
		{name: "shortened", old: evening, expires: noon, refused: true},
	} {
		old := installing(t, etcdSpec)
		old.Spec.Approved = !c.unapproved
		old.Metadata.Annotations.OverrideReason, old.Metadata.Annotations.OverrideExpires = "ticket 77", c.old
		head := &olm.InstallPlanHead{Metadata: old.Metadata, Spec: old.Spec}
		head.Metadata.Annotations.OverrideExpires = c.expires
		if c.removed {
			head.Metadata.Annotations.OverrideReason = ""
		}
		v := JudgePlanUpdate(PlanUpdateInput{New: head, Old: old, Now: momentOf(t, before)})
		if (v.Decision == verdict.Deny) != c.refused || c.refused && !strings.Contains(v.Refusal(),
			"changing annotation opgate.io/override-expires is not allowed (plan/override-reason): an override ends when its approval states; to end it now, write ended") {
			t.Errorf("%s: %s: %s", c.name, v.Decision, v.Refusal())
		}
	}
}

// TestOverrideEnds judges a step of a plan, and one that is stored, by the end of the override of the plan.
func TestOverrideEnds(t *testing.T) {
	for _, c := range []struct {
		name, expires, now string
		ended              string
		letIn              bool // what was stored then was let in
	}{
		{name: "in force", expires: noon, now: before},
		{name: "ended", expires: noon, now: noon,
			ended: "InstallPlan install-x7, which installs it, was approved all the same, " +
				"with an override that ended at 2026-12-01T12:00:00Z (annotation opgate.io/override-expires)"},
		{name: "marked", expires: markNoon, now: before, ended: "with an override that ended at 2026-12-01T12:00:00Z",
			letIn: true},
		{name: "marked, at the end", expires: markNoon, now: noon, ended: "ended at 2026-12-01T12:00:00Z"},
		{name: "ended by a user", expires: "ended", now: before, ended: "with an override that ended (annotation"},
		{name: "not readable", expires: "soon", now: before,
			ended: `with an override that has an end that cannot be read, "soon"`},
		{name: "the time is not known", expires: noon, ended: "and the time is not known"},
	} {
		plan := installing(t, etcdSpec, func(p *olm.InstallPlan) {
			p.Metadata.Annotations.OverrideReason, p.Metadata.Annotations.OverrideExpires = "ticket 77", c.expires
		})
		in := state.NamespaceContents{Exists: true, Policies: []*operatorpolicy.Policy{policyFor("etcd", versions("etcd.v0.9.4"))},
			Plans: []*olm.InstallPlan{plan}}
		v := JudgeCSV(CSVInput{New: written(t, etcdSpec), Namespace: state.NewNamespace("shop", in), ByOLM: true,
			Now: timeOf(t, c.now)})
		if (v.Decision == verdict.Allow) != (c.ended == "") || !strings.Contains(v.Refusal(), c.ended) {
			t.Errorf("%s: %s: %s\nwant %q", c.name, v.Decision, v.Refusal(), c.ended)
		}
		if refused := RefusedSteps(plan, state.NewNamespace("shop", in),
			timeOf(t, c.now)); (len(refused) > 0) != (c.ended != "") {
			t.Errorf("%s: the status has %+v", c.name, refused)
		}
		stored := written(t, etcdSpec)
		stored.Metadata.CreationTimestamp = c.now
		installed, _ := installedBy(stored)
		in.CSVs = []state.Installed{installed}
		if reasons, known := JudgeEscape(stored, state.NewNamespace("shop", in)); !known ||
			(len(reasons) > 0) != (c.ended != "" && !c.letIn) {
			t.Errorf("%s: stored then: known %t, %+v", c.name, known, reasons)
		}
	}
}

// TestEndsAreRecorded has what the leader writes on a plan, and when it looks next.
func TestEndsAreRecorded(t *testing.T) {
	both := func(p *olm.InstallPlan) {
		a := &p.Metadata.Annotations
		a.OverrideReason, a.OverrideExpires, a.Consent, a.ConsentExpires = "ticket 77", evening, "sha256:0", noon
	}
	for _, c := range []struct {
		name string
		edit func(*olm.InstallPlan)
		now  string
		want map[string]string
		next string
	}{
		{name: "before both", now: before, next: noon},
		{name: "after one", now: noon, next: evening, want: map[string]string{metakey.ConsentExpires: markNoon}},
		{name: "after both", now: "2026-12-02T00:00:00Z",
			want: map[string]string{metakey.ConsentExpires: markNoon, metakey.OverrideExpires: "ended " + evening}},
		{name: "the plan is complete", now: noon,
			edit: func(p *olm.InstallPlan) { p.Status.Phase = olm.PhaseComplete }},
		{name: "not approved: the override has not begun", now: "2026-12-02T00:00:00Z",
			edit: func(p *olm.InstallPlan) { p.Spec.Approved = false },
			want: map[string]string{metakey.ConsentExpires: markNoon}},
		{name: "marked", now: noon, next: evening,
			edit: func(p *olm.InstallPlan) { p.Metadata.Annotations.ConsentExpires = markNoon }},
		{name: "not readable", now: noon, next: evening,
			edit: func(p *olm.InstallPlan) { p.Metadata.Annotations.ConsentExpires = "soon" }},
		{name: "no consent", now: noon, next: evening,
			edit: func(p *olm.InstallPlan) { p.Metadata.Annotations.Consent = "" }},
	} {
		plan := installing(t, etcdSpec, both)
		if c.edit != nil {
			c.edit(plan)
		}
		now := momentOf(t, c.now)
		if got := evidence.EndMarks(plan, now); !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
		ns := state.NewNamespace("shop", state.NamespaceContents{Policies: []*operatorpolicy.Policy{policyFor("etcd", nil)},
			Plans: []*olm.InstallPlan{plan}})
		if got := NextChange(ns, now); !got.Equal(timeOf(t, c.next)) {
			t.Errorf("%s: next is %s, want %s", c.name, got, c.next)
		}
	}
}
