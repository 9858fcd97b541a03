package dependency

import (
	"strings"
	"testing"
)

func TestRef(t *testing.T) {
	long := strings.Repeat("n", 300)
	for want, r := range map[string]Ref{
		"Policy shop/db":                      PolicyRef("shop", "db"),
		"PolicySet shop/all":                  SetRef("shop", "all"),
		"Constraint curated":                  {ConstraintGroup, KindConstraint, "", "curated"},
		"Widget.example.com shop/w":           {"example.com", "Widget", "shop", "w"},
		"ConfigMap shop/c":                    {"", "ConfigMap", "shop", "c"},
		`Policy shop/"a b"`:                   PolicyRef("shop", "a b"),
		`Policy shop/"größe"`:                 PolicyRef("shop", "größe"),
		`Policy shop/"p\u202eolicy"`:          PolicyRef("shop", "p\u202eolicy"),
		`"" ""`:                               {},
		`Policy shop/"` + long[:120] + `"...`: PolicyRef("shop", long),
	} {
		if got := r.String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	for _, c := range []struct {
		r                               Ref
		suspendable, gatekeeper, scoped bool
	}{
		{r: Ref{PolicyGroup, KindOperatorPolicy, "shop", "x"}, suspendable: true},
		{r: Ref{ConstraintGroup, KindConstraint, "", "x"}, suspendable: true, scoped: true},
		{r: Ref{PolicyGroup, KindConstraint, "shop", "x"}},
		{r: Ref{ConstraintGroup, KindOperatorPolicy, "shop", "x"}},
		{r: Ref{GatekeeperConstraintGroup, KindConstraint, "", "x"}, gatekeeper: true, scoped: true},
		{r: Ref{GatekeeperTemplateGroup, KindConstraintTemplate, "", "x"}, gatekeeper: true, scoped: true},
		{r: Ref{GatekeeperTemplateGroup, "Other", "", "x"}},
		{r: PolicyRef("shop", "x")},
	} {
		if c.r.Suspendable() != c.suspendable || c.r.Gatekeeper() != c.gatekeeper || c.r.clusterScoped() != c.scoped {
			t.Errorf("%+v: suspendable %t, gatekeeper %t, cluster-scoped %t", c.r, c.r.Suspendable(), c.r.Gatekeeper(),
				c.r.clusterScoped())
		}
	}
}
