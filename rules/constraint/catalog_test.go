package constraint

import (
	"strings"
	"testing"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	"github.com/opgate/opgate/olm"
)

// TestCatalogState: a rule reads the CatalogSource of the bundle, and is undecided without one: it never counts as
// priority 0.
func TestCatalogState(t *testing.T) {
	curated := olm.Catalog{Namespace: "olm", Name: "curated"}
	for _, c := range []struct {
		name, rule string
		source     *olm.CatalogSource
		catalog    olm.Catalog
		unknown    Attributes
		want       Outcome
	}{
		{name: "enough", rule: `catalog.priority > 100`,
			source: &olm.CatalogSource{Spec: olm.CatalogSourceSpec{Priority: 101}}, catalog: curated, want: Satisfied},
		{name: "too little", rule: `catalog.priority > 100`,
			source: &olm.CatalogSource{Spec: olm.CatalogSourceSpec{Priority: 100}}, catalog: curated, want: Violated},
		{name: "unset", rule: `catalog.priority == 0 && catalog.image == "" && !catalog.healthy`,
			source: &olm.CatalogSource{}, catalog: curated, want: Satisfied},
		{name: "negative", rule: `catalog.priority >= 0`,
			source: &olm.CatalogSource{Spec: olm.CatalogSourceSpec{Priority: -1}}, catalog: curated, want: Violated},
		{name: "image", rule: `catalog.image.startsWith("quay.io/acme/")`,
			source: &olm.CatalogSource{Spec: olm.CatalogSourceSpec{Image: "quay.io/acme/catalog"}}, catalog: curated,
			want: Satisfied},
		{name: "healthy", rule: `catalog.healthy`, source: healthy(), catalog: curated, want: Satisfied},
		{name: "does not exist", rule: `catalog.priority >= 0`, catalog: curated, want: Undecided},
		{name: "does not exist, negated", rule: `!(catalog.priority > 100)`, catalog: curated, want: Undecided},
		{name: "does not exist, in a loop", rule: `properties.all(catalog, .catalog.priority >= 0)`, catalog: curated,
			want: Undecided},
		{name: "not needed", rule: `catalog.name == "curated" || catalog.priority > 100`, catalog: curated,
			want: Satisfied},
		{name: "from no catalog", rule: `catalog.priority >= 0`, source: &olm.CatalogSource{}, want: Undecided},
		{name: "catalog not known", rule: `catalog.priority >= 0`, source: &olm.CatalogSource{}, catalog: curated,
			unknown: CatalogSource, want: Undecided},
	} {
		b, facts := etcd(), kubeOne
		b.Catalog, b.Unknown = c.catalog, c.unknown
		if c.source != nil {
			facts.AddCatalog(curated, c.source)
		}
		found := append(NewSet([]*Definition{sound(t, "one", seed(c.rule), "")}, facts).Judge(b, shop, nil), Result{})
		if found[0].Outcome != c.want {
			t.Errorf("%s: %s (%s), want %s", c.name, found[0].Outcome, found[0].Why, c.want)
		}
		if says := strings.Contains(found[0].Why, "CatalogSource olm/curated does not exist"); says != (c.want == Undecided && c.catalog == curated) {
			t.Errorf("%s: %s", c.name, found[0].Why)
		}
	}
}

// TestCatalogStateIsRead: subscribers are not notified of facts that no rule reads, and has() of a field that is always
// set is a mistake.
func TestCatalogStateIsRead(t *testing.T) {
	changed := kubeOne
	changed.AddCatalog(olm.Catalog{Namespace: "olm", Name: "curated"}, &olm.CatalogSource{})
	for rule, want := range map[string]bool{`catalog.priority > 1`: true, `catalog.name == ""`: false} {
		s := NewSet([]*Definition{sound(t, "one", seed(rule), "")}, kubeOne)
		if got := s.Reads(s.Differs(&changed)); got != want {
			t.Errorf("%s: %v", rule, got)
		}
	}
	if f := Define(Meta{Name: "one"},
		&constraintv1.ConstraintSpec{Constraints: seed(`!has(catalog.priority)`)}).fault(); f == nil ||
		!strings.Contains(f.Message, "leave out has()") {
		t.Errorf("%+v", f)
	}
}

func healthy() *olm.CatalogSource {
	c := &olm.CatalogSource{}
	c.Status.Connection.State = "READY"
	return c
}
