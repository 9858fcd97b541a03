package dependency

import (
	"strings"
	"testing"
)

const guardTemplate = "  - objectDefinition: {apiVersion: policy.open-cluster-management.io/v1beta2, kind: OperatorPolicy, metadata: {name: guard}}\n"

// guarded returns the Policy shop/app with the template OperatorPolicy guard, and what its status reports of that
// template.
func guarded(t *testing.T, dependencies, reported, more string) *Policy {
	t.Helper()
	return Read(stored(t, more+"spec:\n  dependencies: ["+dependencies+"]\n  policy-templates:\n"+guardTemplate+
		"status:\n  details: [{templateMeta: {name: guard}, dependencies: "+reported+"}]\n"+
		"  dependencies: [{kind: Policy, namespace: shop, name: db, compliance: Compliant, reason: NotFound, templates: [guard]}]\n"))
}

// TestCreatedBy: a Policy creates what its templates are about, whether it waits or not, while it is in force.
func TestCreatedBy(t *testing.T) {
	ref := OperatorPolicyRef("shop", "guard")
	for name, c := range map[string]struct {
		change func(*Policy)
		want   string
	}{
		"it waits": {change: func(*Policy) {}, want: "shop/app"},
		"it waits for nothing": {change: func(p *Policy) { p.Templates[0].Reported = p.Templates[0].Met },
			want: "shop/app"},
		"it is disabled":              {change: func(p *Policy) { p.Disabled = true }},
		"it is being deleted":         {change: func(p *Policy) { p.Deleting = true }},
		"its namespace is excluded":   {change: func(p *Policy) { p.Excluded = true }},
		"the template has a fault":    {change: func(p *Policy) { p.Templates[0].Fault = "no name" }},
		"the template cannot be read": {change: func(p *Policy) { p.Templates[0].Readable = false }},
	} {
		t.Run(name, func(t *testing.T) {
			p := guarded(t, on("Policy db"), `""`, "")
			c.change(p)
			g := newGraph([]*Policy{p}, nil)
			if got := g.CreatedBy(ref); got != c.want {
				t.Errorf("it is created by %q, want %q", got, c.want)
			}
			if got := g.CreatedBy(OperatorPolicyRef("shop", "other")); got != "" {
				t.Errorf("another one is created by %q", got)
			}
		})
	}
}

// TestO15OrderCannotBeBypassed: the list of templates of a Policy and its status decide, nothing of the suspended
// object does.
func TestO15OrderCannotBeBypassed(t *testing.T) {
	db := on("Policy db")
	met := guarded(t, db, `""`, "").Templates[0].Met
	for _, c := range []struct {
		name, dependencies, reported, more string
		want                               string
	}{
		{name: "never evaluated, or its status was lost in a restore", dependencies: db, reported: `""`,
			want: "shop/app"},
		{name: "it waits", dependencies: db, reported: unsatisfied, want: "shop/app"},
		{name: "it is met", dependencies: db, reported: met},
		{name: "attack: another dependency since it was met", dependencies: db + ", " + on("Policy cache"),
			reported: met, want: "shop/app"},
		{name: "attack: another state since it was met", dependencies: on("Policy db NonCompliant"), reported: met,
			want: "shop/app"},
		{name: "it depends on nothing any more", reported: unsatisfied},
		{name: "the Policy is being deleted", dependencies: db, reported: unsatisfied,
			more: "metadata: {namespace: shop, name: app, deletionTimestamp: \"2026-11-21T12:00:00Z\"}\n"},
		{name: "the namespace of the Policy is excluded", dependencies: db, reported: `""`,
			more: "metadata: {namespace: shop, name: app}\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := guarded(t, c.dependencies, c.reported, c.more)
			p.Excluded = strings.Contains(c.name, "excluded")
			g := newGraph([]*Policy{p}, nil)
			got, waits := g.Suspending(OperatorPolicyRef("shop", "guard"))
			if got != c.want {
				t.Errorf("suspended by %q, want %q", got, c.want)
			}
			if want := "Policy shop/app waits for Policy shop/db (NotFound)"; (got != "") != (waits == want) {
				t.Errorf("waits: %q", waits)
			}
			for _, other := range []Ref{OperatorPolicyRef("other", "guard"), OperatorPolicyRef("shop", "other"),
				ConstraintRef("guard")} {
				if by, _ := g.Suspending(other); by != "" {
					t.Errorf("%s is suspended by %s", other, by)
				}
			}
			if by, _ := g.Without(app()).Suspending(OperatorPolicyRef("shop", "guard")); by != "" {
				t.Errorf("suspended by %s, which does not exist", by)
			}
		})
	}
}

// TestDependenciesAfter: what a status reports of the dependencies after a decision.
func TestDependenciesAfter(t *testing.T) {
	db := dep("Policy", "db", Compliant)
	met, notMet := Evaluate(db, Observed{State: Compliant}), Evaluate(db, Observed{Reason: NotFound})
	stale := Evaluate(db, Observed{Generation: 2, HasObserved: true})
	foreign, ours := &Live{}, &Live{Ours: true}
	for _, c := range []struct {
		name, reported, want string
		in                   TemplateInput
	}{
		{name: "met", in: TemplateInput{Results: []Result{met}, Live: ours}, want: satisfied},
		{name: "not met", in: TemplateInput{Results: []Result{notMet}, Live: ours}, want: unsatisfied},
		{name: "not met, and nothing exists", in: TemplateInput{Results: []Result{notMet}}, want: unsatisfied},
		{name: "lost", reported: satisfied, in: TemplateInput{Results: []Result{notMet}, Live: ours},
			want: unsatisfied},
		{name: "met again", reported: unsatisfied, in: TemplateInput{Results: []Result{met}}, want: satisfied},
		{name: "not met, with ignorePending", in: TemplateInput{Template: Template{IgnorePending: true},
			Results: []Result{notMet}}, want: unsatisfied},
		{name: "undecided from the beginning", in: TemplateInput{Results: []Result{stale}}, want: unsatisfied},
		{name: "undecided since it was met", reported: satisfied,
			in: TemplateInput{Results: []Result{stale}, Live: ours}, want: satisfied},
		{name: "undecided since it was not met", reported: unsatisfied,
			in: TemplateInput{Results: []Result{stale}, Live: ours}, want: unsatisfied},
		{name: "attack: a Policy names what others made", in: TemplateInput{Results: []Result{notMet}, Live: foreign},
			want: satisfied},
		{name: "attack: its labels and owners were replaced", reported: unsatisfied,
			in: TemplateInput{Results: []Result{notMet}, Live: foreign}, want: unsatisfied},
		{name: "attack: a Policy of an unverified author", in: TemplateInput{KindFault: UnverifiedText, Live: foreign},
			want: satisfied},
		{name: "attack: an unverified edit of one that waits", reported: unsatisfied,
			in: TemplateInput{KindFault: UnverifiedText, Live: ours}, want: unsatisfied},
		{name: "attack: a fault in one that waits", reported: unsatisfied,
			in: TemplateInput{Template: Template{Fault: "two of a name"}, Live: ours}, want: unsatisfied},
		{name: "attack: a hub error in one that waits", reported: unsatisfied,
			in:   TemplateInput{Template: Template{HubError: "cannot"}, Results: []Result{met}, Live: ours},
			want: unsatisfied},
		{name: "it could not be written, and waits",
			in: TemplateInput{Results: []Result{notMet}, WriteFault: "forbidden"}, want: unsatisfied},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.in.Template.Met, c.in.Template.Reported = satisfied, c.reported
			if got := Decide(c.in).Dependencies; got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			c.in.Template.Met = ""
			if got := Decide(c.in).Dependencies; got != "" {
				t.Errorf("of a template that is never suspended: %q", got)
			}
		})
	}
}
