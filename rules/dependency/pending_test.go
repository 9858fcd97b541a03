package dependency

import (
	"testing"

	policyv1 "github.com/opgate/opgate/api/policy/v1"
)

func TestPendingOn(t *testing.T) {
	wait := func(r Ref, reason Reason, state State, templates ...string) policyv1.DependencyStatus {
		return policyv1.DependencyStatus{APIVersion: r.Group + "/v1", Kind: r.Kind, Namespace: r.Namespace, Name: r.Name,
			Reason: string(reason), Compliance: policyv1.Compliant, State: policyv1.ComplianceState(state), Templates: templates}
	}
	x, db := Ref{PolicyGroup, "ConfigurationPolicy", "shop", "x"}, PolicyRef("shop", "db")
	for _, c := range []struct {
		name, template string
		pending        []policyv1.DependencyStatus
		want           string
	}{
		{name: "nothing", want: "its dependencies"},
		{name: "one", pending: []policyv1.DependencyStatus{wait(x, NotFound, "")}, want: "ConfigurationPolicy shop/x (NotFound)"},
		{name: "two", pending: []policyv1.DependencyStatus{wait(db, WrongState, Pending), wait(x, NotFound, "")},
			want: "Policy shop/db (Pending, want Compliant), ConfigurationPolicy shop/x (NotFound)"},
		{name: "elsewhere", pending: []policyv1.DependencyStatus{wait(PolicyRef("infra", "base"), Stale, Compliant)},
			want: "Policy infra/base (Stale)"},
		{name: "no reason given", pending: []policyv1.DependencyStatus{{Kind: "Policy", Namespace: "shop", Name: "db"}}, want: "Policy shop/db"},
		{name: "of this template", template: "app-t",
			pending: []policyv1.DependencyStatus{wait(db, NotFound, "", "other"), wait(x, NotFound, "", "app-t")},
			want:    "ConfigurationPolicy shop/x (NotFound)"},
		{name: "not of this template", template: "app-t", pending: []policyv1.DependencyStatus{wait(db, NotFound, "", "other")},
			want: "its dependencies"},
		{name: "of so many that this one may be among them", template: "app-t",
			pending: []policyv1.DependencyStatus{wait(db, NotFound, "", "a", "b", "c", "d", "e")},
			want:    "Policy shop/db (NotFound)"},
		{name: "more than are named", pending: []policyv1.DependencyStatus{wait(db, NotFound, ""), wait(db, NotFound, ""),
			wait(db, NotFound, ""), wait(db, NotFound, "")},
			want: "Policy shop/db (NotFound), Policy shop/db (NotFound), Policy shop/db (NotFound) and 1 more"},
		{name: "a status that plays with the terminal",
			pending: []policyv1.DependencyStatus{{Kind: "\x1b[2J", Namespace: "shop", Name: "x\ny", Reason: "\x07"}},
			want:    `"\x1b[2J" shop/"x\ny" ("\a")`},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &Policy{Namespace: "shop", Name: "app", PendingDependencies: c.pending}
			if got, want := p.PendingOn(c.template), "Policy shop/app waits for "+c.want; got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}
