package constraint

import (
	"fmt"
	"strings"
	"testing"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
)

func TestChange(t *testing.T) {
	upgrade := &Change{Digest: "sha256:aa", From: "etcd.v1", Lists: map[string][]string{
		"permissions": {"cluster-wide: * on secrets", "cluster-wide: get on pods"},
		"risky":       {"cluster-wide: * on secrets"},
	}}
	for _, c := range []struct {
		name, rule string
		change     *Change
		unknown    Attributes
		want       Outcome
	}{
		{name: "a text", rule: `!change.permissions.exists(p, p.contains("secrets"))`, change: upgrade, want: Violated},
		{name: "no text", rule: `!change.permissions.exists(p, p.contains("nodes"))`, change: upgrade, want: Satisfied},
		{name: "a class without differences", rule: `change.webhooks.size() == 0`, change: upgrade, want: Satisfied},
		{name: "risky ones", rule: `change.risky.size() == 0`, change: upgrade, want: Violated},
		{name: "any class", rule: `!change.exists(class, change[class].size() > 1)`, change: upgrade, want: Violated},
		{name: "the digest", rule: `change.risky.size() == 0 || change.digest in ["sha256:aa"]`, change: upgrade,
			want: Satisfied},
		{name: "another digest", rule: `change.risky.size() == 0 || change.digest in ["sha256:bb"]`, change: upgrade,
			want: Violated},
		{name: "an upgrade", rule: `!change.first && change.from == "etcd.v1"`, change: upgrade, want: Satisfied},
		{name: "a first installation", rule: `change.first && change.from == ""`, change: &Change{Digest: "sha256:aa"},
			want: Satisfied},
		{name: "not known", rule: `change.risky.size() == 0`, unknown: ChangeSet, want: Undecided},
		{name: "the digest is not known", rule: `change.digest == ""`, unknown: ChangeSet, want: Undecided},
		{name: "not known whether it is the first", rule: `change.first`, unknown: ChangeSet, want: Undecided},
		{name: "not known and not needed", rule: `packageName == "etcd" || change.first`, unknown: ChangeSet,
			want: Satisfied},
	} {
		b := etcd()
		b.Change, b.Unknown = c.change, c.unknown
		found := append(NewSet([]*Definition{sound(t, "one", seed(c.rule), "")}, kubeOne).Judge(b, shop, nil),
			Result{})
		if found[0].Outcome != c.want {
			t.Errorf("%s: %s (%s), want %s", c.name, found[0].Outcome, found[0].Why, c.want)
		}
		if says := strings.Contains(found[0].Why, "the changes of what is installed are not known"); says != (c.want == Undecided) {
			t.Errorf("%s: %s", c.name, found[0].Why)
		}
	}
	for rule, want := range map[string]string{`change.rights.size() == 0`: "it has permissions, webhooks",
		`change == ""`: "no matching overload"} {
		if f := Define(Meta{Name: "one"}, &constraintv1.ConstraintSpec{Constraints: seed(rule)}).fault(); f == nil ||
			!strings.Contains(f.Message, want) {
			t.Errorf("%s: %+v", rule, f)
		}
	}
}

// TestLargeChange: a rule over a change that is as large as it may be stays within its limits, or is refused as too
// expensive.
func TestLargeChange(t *testing.T) {
	lists := map[string][]string{}
	for _, name := range ChangeLists {
		for i := range 512 {
			lists[name] = append(lists[name], fmt.Sprintf("%04d %s", i, strings.Repeat("x", 512)))
		}
	}
	b := etcd()
	b.Change = &Change{Digest: "sha256:aa", From: "etcd.v1", Lists: lists}
	for rule, want := range map[string]Outcome{
		`!change.risky.exists(r, r.contains("secrets"))`: Satisfied,
		`change.permissions.all(p, change.webhooks.all(w, change.images.all(i, p + w + i != "" && change.scope.all(s, s != p)))))`: Failed,
	} {
		found := append(NewSet([]*Definition{Define(Meta{Name: "one"},
			&constraintv1.ConstraintSpec{Constraints: seed(rule)})}, kubeOne).Judge(b, shop, NewBudget(nil)), Result{})
		if found[0].Outcome != want {
			t.Errorf("%s: %s (%s), want %s", rule, found[0].Outcome, found[0].Why, want)
		}
	}
}
