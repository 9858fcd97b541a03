package constraint

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
)

func TestOwn(t *testing.T) {
	vault := &Bundle{Bundle: olm.Bundle{Name: "vault.v1.0.0", Package: "vault", Version: "1.0.0",
		Properties: props("olm.package", `{"packageName":"vault","version":"1.0.0"}`, "olm.gvk",
			`{"group":"v","version":"v1","kind":"Vault"}`)}}
	wants := func(value string) *Bundle { return etcd("olm.constraint", value) }
	vaultGVK := `{"gvk":{"group":"v","version":"v1","kind":"Vault"}}`
	vaultNew := `{"package":{"packageName":"vault","versionRange":">=2.0.0"}}`
	etcdGVK := `{"gvk":{"group":"etcd.database.coreos.com","version":"v1beta2","kind":"EtcdCluster"}}`
	gpu := `{"failureMessage":"needs a GPU","cel":{"rule":"properties.exists(p, p.type == 'gpu')"}}`
	cluster := NewSet([]*Definition{sound(t, "gpu", "", `[{"type":"gpu","value":true}]`)}, kubeOne)
	plain := NewSet(nil, kubeOne)
	for _, c := range []struct {
		name       string
		set        *Set
		bundle     *Bundle
		candidates []*Bundle
		want       []Result
	}{
		{name: "no constraint", set: plain, bundle: etcd()},
		{name: "another bundle", set: plain, bundle: wants(vaultGVK), candidates: []*Bundle{vault}},
		{name: "nothing provides it", set: plain, bundle: wants(vaultGVK),
			want: []Result{{Outcome: Violated, Rule: "gvk v/v1 Vault"}}},
		{name: "the bundle itself", set: plain, bundle: wants(etcdGVK)},
		{name: "the cluster", set: cluster, bundle: wants(gpu)},
		{name: "not the cluster", set: plain, bundle: wants(gpu),
			want: []Result{{Outcome: Violated, Message: "needs a GPU",
				Rule: "properties.exists(p, p.type == 'gpu')"}}},
		{name: "the cluster is not known", set: nil, bundle: wants(gpu),
			want: []Result{{Outcome: Undecided, Message: "needs a GPU", Rule: "properties.exists(p, p.type == 'gpu')",
				Why: "the properties of the bundle are not known", Attributes: Properties}}},
		{name: "one must satisfy all", set: plain,
			bundle: wants(`{"all":{"constraints":[` + vaultGVK + `,` + etcdGVK + `]}}`), candidates: []*Bundle{vault},
			want: []Result{{Outcome: Violated,
				Rule: "all of (gvk v/v1 Vault; gvk etcd.database.coreos.com/v1beta2 EtcdCluster)"}}},
		{name: "any", set: plain, bundle: wants(`{"any":{"constraints":[` + vaultNew + `,` + vaultGVK + `]}}`),
			candidates: []*Bundle{vault}},
		{name: "not alone is satisfied by any other", set: plain,
			bundle: wants(`{"not":{"constraints":[` + vaultGVK + `]}}`), candidates: []*Bundle{vault}},
		{name: "an error on a candidate does not match, as in OLM", set: plain,
			bundle: wants(`{"cel":{"rule":"properties[9].type == ''"}}`), candidates: []*Bundle{vault},
			want: []Result{{Outcome: Violated, Rule: "properties[9].type == ''"}}},
		{name: "not of an error matches, as in OLM", set: plain,
			bundle: wants(`{"not":{"constraints":[{"cel":{"rule":"properties[9].type == ''"}}]}}`)},
		{name: "two constraints", set: plain, bundle: etcd("olm.constraint", vaultGVK, "olm.constraint", vaultNew),
			candidates: []*Bundle{vault},
			want:       []Result{{Outcome: Violated, Rule: `package vault in range ">=2.0.0"`}}},
		{name: "a candidate that is not known", set: plain, bundle: wants(vaultNew),
			candidates: []*Bundle{{Bundle: olm.Bundle{Name: "x"}, Unknown: OfBundle}},
			want: []Result{{Outcome: Undecided, Rule: `package vault in range ">=2.0.0"`,
				Why: "the package and the version are not known", Attributes: Package | Version}}},
		{name: "empty", set: plain, bundle: wants(`{}`),
			want: []Result{{Outcome: Failed, Rule: "{}",
				Why: "it is empty; one of cel, package, gvk, all, any and not is required"}}},
		{name: "the proposal's form is not OLM's", set: plain, bundle: wants(`{"rule":"true"}`),
			want: []Result{{Outcome: Failed, Rule: `{"rule":"true"}`,
				Why: `it cannot be read: json: unknown field "rule"`}}},
		{name: "deep", set: plain, bundle: wants(strings.Repeat(`{"not":{"constraints":[`, 60) +
			strings.Repeat("]}}", 60)),
			want: []Result{{Outcome: Failed, Rule: text.Truncate(strings.Repeat(`{"not":{"constraints":[`, 60),
				ruleShown), Why: "it is nested deeper than 100 levels"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			Prepare(c.bundle.Properties)
			before := Compilations()
			got := c.set.Own(c.bundle, c.candidates, shop, NewBudget(nil))
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			if Compilations() != before {
				t.Error("compiled while judging")
			}
		})
	}
}

// TestOwnIsNotCompiledWhileJudging: a rule is not judged before Prepare, and the finding says so.
func TestOwnIsNotCompiledWhileJudging(t *testing.T) {
	b := etcd("olm.constraint", `{"cel":{"rule":"properties.exists(p, p.type == 'never seen before')"}}`)
	s := NewSet(nil, kubeOne)
	before := Compilations()
	if found := s.Own(b, nil, shop, nil); len(found) != 1 || found[0].Outcome != Failed ||
		found[0].Why != whyNotCompiled {
		t.Errorf("%+v", found)
	}
	if Compilations() != before {
		t.Error("compiled while judging")
	}
	Prepare(b.Properties)
	Prepare(b.Properties)
	if found := s.Own(b, nil, shop, nil); len(found) != 1 || found[0].Outcome != Violated {
		t.Errorf("%+v", found)
	}
	if got := Compilations() - before; got != 1 {
		t.Errorf("compiled %d times", got)
	}
}

// TestFailuresAreRemembered: a compile error is cached for all bundles with the same rule.
func TestFailuresAreRemembered(t *testing.T) {
	Define(Meta{}, &constraintv1.ConstraintSpec{Constraints: seed(`nothing.like.this`)})
	before := Compilations()
	for range 10 {
		if d := Define(Meta{}, &constraintv1.ConstraintSpec{Constraints: seed(`nothing.like.this`)}); len(
			d.Faults) != 1 {
			t.Fatalf("%+v", d.Faults)
		}
	}
	if Compilations() != before {
		t.Error("compiled again")
	}
}
