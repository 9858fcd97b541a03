package dependency

import (
	"strings"
	"testing"
)

func TestChain(t *testing.T) {
	wait := func(r Ref, reason Reason, state State, templates ...string) PendingDependency {
		return PendingDependency{Ref: r, Reason: reason, Want: Compliant, State: state, Templates: templates}
	}
	policy := func(name string, state State, pending ...PendingDependency) *Policy {
		return &Policy{Namespace: "shop", Name: name, State: state, PendingDependencies: pending,
			Templates: []Template{{Name: name + "-t", Ref: Ref{PolicyGroup, "ConfigurationPolicy", "shop", name + "-t"},
				Readable: true}}}
	}
	x := Ref{PolicyGroup, "ConfigurationPolicy", "shop", "x"}
	db, base := PolicyRef("shop", "db"), PolicyRef("infra", "base")
	widget := Ref{"example.com", "Widget", "shop", "w"}
	for _, c := range []struct {
		name, template string
		policies       []*Policy
		sets           []*Set
		want           string
	}{
		{name: "nothing is known", want: "Policy shop/app waits for its dependencies"},
		{name: "it waits for nothing any more", policies: []*Policy{policy("app", Compliant)},
			want: "Policy shop/app waits for its dependencies"},
		{name: "one", policies: []*Policy{policy("app", Pending, wait(x, NotFound, ""))},
			want: "Policy shop/app waits for ConfigurationPolicy shop/x (NotFound)"},
		{name: "two", policies: []*Policy{policy("app", Pending, wait(db, WrongState, Pending)),
			policy("db", Pending, wait(x, NotFound, ""))},
			want: "Policy shop/app waits for Policy shop/db (Pending, want Compliant), which waits for ConfigurationPolicy shop/x (NotFound)"},
		{name: "the one that leads on first",
			policies: []*Policy{policy("app", Pending, wait(x, NotFound, ""), wait(db, WrongState, Pending)),
				policy("db", Pending, wait(widget, NoKind, ""))},
			want: "Policy shop/app waits for Policy shop/db (Pending, want Compliant), which waits for Widget.example.com shop/w (NoKind)"},
		{name: "elsewhere", policies: []*Policy{policy("app", Pending, wait(base, Stale, Compliant))},
			want: "Policy shop/app waits for Policy infra/base (Stale)"},
		{name: "in a circle", policies: []*Policy{policy("app", Pending, wait(db, WrongState, Pending)),
			policy("db", Pending, wait(app(), WrongState, Pending))},
			want: "Policy shop/app waits for Policy shop/db (Pending, want Compliant)"},
		{name: "out of the circle", policies: []*Policy{policy("app", Pending, wait(db, WrongState, Pending)),
			policy("db", Pending, wait(app(), WrongState, Pending), wait(x, NotFound, ""))},
			want: "Policy shop/app waits for Policy shop/db (Pending, want Compliant), which waits for ConfigurationPolicy shop/x (NotFound)"},
		{name: "for itself", policies: []*Policy{policy("app", Pending, wait(app(), WrongState, Pending))},
			want: "Policy shop/app waits for Policy shop/app (Pending, want Compliant)"},
		{name: "through the template of another",
			policies: []*Policy{policy("app", Pending,
				wait(Ref{PolicyGroup, "ConfigurationPolicy", "shop", "db-t"}, NotFound, "")), policy("db", Pending,
				wait(base, NotFound, "", "db-t"))},
			want: "Policy shop/app waits for ConfigurationPolicy shop/db-t (NotFound), which waits for Policy infra/base (NotFound)"},
		{name: "past the template of another",
			policies: []*Policy{policy("app", Pending,
				wait(Ref{PolicyGroup, "ConfigurationPolicy", "shop", "db-t"}, WrongState, NonCompliant)), policy("db",
				Pending, wait(base, NotFound, "", "other"))},
			want: "Policy shop/app waits for ConfigurationPolicy shop/db-t (NonCompliant, want Compliant)"},
		{name: "through the second of two that make it",
			policies: []*Policy{policy("app", Pending,
				wait(Ref{PolicyGroup, "ConfigurationPolicy", "shop", "db-t"}, NotFound, "")),
				{Namespace: "shop", Name: "aa",
					Templates: []Template{{Name: "db-t", Ref: Ref{PolicyGroup, "ConfigurationPolicy", "shop", "db-t"},
						Readable: true}}}, policy("db", Pending, wait(base, NotFound, "", "db-t"))},
			want: "Policy shop/app waits for ConfigurationPolicy shop/db-t (NotFound), which waits for Policy infra/base (NotFound)"},
		{name: "through a set", policies: []*Policy{policy("app", Pending,
			wait(SetRef("shop", "all"), WrongState, Pending)), policy("a", Compliant), policy("db", Pending,
			wait(x, NotFound, ""))},
			sets: []*Set{{Namespace: "shop", Name: "all", Policies: []string{"a", "gone", "db"}}},
			want: "Policy shop/app waits for PolicySet shop/all (Pending, want Compliant), which waits for Policy shop/db (Pending, want Compliant), which waits for ConfigurationPolicy shop/x (NotFound)"},
		{name: "a set with all kinds of members",
			policies: []*Policy{policy("app", Pending, wait(SetRef("shop", "all"), NoStatus, "")),
				policy("silent", Unknown), {Namespace: "shop", Name: "off", Disabled: true}},
			sets: []*Set{{Namespace: "shop", Name: "all", Policies: []string{"off", "silent"}}},
			want: "Policy shop/app waits for PolicySet shop/all (NoStatus), which waits for Policy shop/silent (NoStatus)"},
		{name: "a set that is not there",
			policies: []*Policy{policy("app", Pending, wait(SetRef("shop", "all"), NotFound, ""))},
			want:     "Policy shop/app waits for PolicySet shop/all (NotFound)"},
		{name: "no reason given", policies: []*Policy{policy("app", Pending, PendingDependency{Ref: db})},
			want: "Policy shop/app waits for Policy shop/db"},
		{name: "a set without a member",
			policies: []*Policy{policy("app", Pending, wait(SetRef("shop", "all"), NoStatus, ""))},
			sets:     []*Set{{Namespace: "shop", Name: "all", Policies: []string{"gone"}}},
			want:     "Policy shop/app waits for PolicySet shop/all (NoStatus), which waits for Policy shop/gone (NotFound)"},
		{name: "of this template", template: "app-t",
			policies: []*Policy{policy("app", Pending, wait(db, NotFound, "", "other"),
				wait(x, NotFound, "", "app-t"))},
			want: "Policy shop/app waits for ConfigurationPolicy shop/x (NotFound)"},
		{name: "not of this template", template: "app-t",
			policies: []*Policy{policy("app", Pending, wait(db, NotFound, "", "other"))},
			want:     "Policy shop/app waits for its dependencies"},
		{name: "of so many that this one may be among them", template: "app-t",
			policies: []*Policy{policy("app", Pending, wait(db, NotFound, "", "a", "b", "c", "d", "e"))},
			want:     "Policy shop/app waits for Policy shop/db (NotFound)"},
		{name: "a status that plays with the terminal",
			policies: []*Policy{policy("app", Pending,
				PendingDependency{Ref: Ref{"", "\x1b[2J", "shop", "x\ny"}, Reason: "\x07"})},
			want: `Policy shop/app waits for "\x1b[2J" shop/"x\ny" ("\a")`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := newGraph(c.policies, c.sets).Chain(app(), c.template); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
	var none *Graph
	if got := none.Chain(app(), "x"); got != "Policy shop/app waits for its dependencies" {
		t.Error(got)
	}
}

// TestLongChain: the message is bounded, and so is the traversal.
func TestLongChain(t *testing.T) {
	got := newGraph(chainOf(10_000), nil).Chain(PolicyRef("shop", "p0"), "t")
	if steps := strings.Count(got, "Policy shop/"); steps != 1+maxSteps ||
		!strings.HasSuffix(got, "Policy shop/p10 (Pending, want Compliant), which waits for more") {
		t.Errorf("%d steps: %s", steps, got)
	}
}
