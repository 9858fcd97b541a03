package constraint

import (
	"strings"
	"testing"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	"github.com/opgate/opgate/olm"
)

func TestDeprecated(t *testing.T) {
	for _, c := range []struct {
		name, rule string
		deprecated olm.Deprecations
		unknown    Attributes
		want       Outcome
	}{
		{name: "nothing", rule: `deprecated.package + deprecated.channel + deprecated.version == ""`, want: Satisfied},
		{name: "the package", rule: `deprecated.package == ""`, deprecated: olm.Deprecations{Package: "old"},
			want: Violated},
		{name: "the channel", rule: `deprecated.channel == ""`, deprecated: olm.Deprecations{Channel: "old"},
			want: Violated},
		{name: "the version", rule: `deprecated.version == ""`, deprecated: olm.Deprecations{Version: "old"},
			want: Violated},
		{name: "another part", rule: `deprecated.version == ""`,
			deprecated: olm.Deprecations{Package: "old", Channel: "old"}, want: Satisfied},
		{name: "all at once", rule: `deprecated.exists(part, deprecated[part] == "")`,
			deprecated: olm.Deprecations{Package: "a", Channel: "b", Version: "c"}, want: Violated},
		{name: "the message", rule: `deprecated.package.contains("postgres")`,
			deprecated: olm.Deprecations{Package: "use postgres"}, want: Satisfied},
		{name: "not known", rule: `deprecated.version == ""`, unknown: Deprecation, want: Undecided},
		{name: "not known, negated", rule: `deprecated.version != ""`, unknown: Deprecation, want: Undecided},
		{name: "not known and not needed", rule: `packageName == "etcd" || deprecated.version == ""`,
			unknown: Deprecation, want: Satisfied},
	} {
		b := etcd()
		b.Deprecated, b.Unknown = c.deprecated, c.unknown
		found := append(NewSet([]*Definition{sound(t, "one", seed(c.rule), "")}, kubeOne).Judge(b, shop, nil),
			Result{})
		if found[0].Outcome != c.want {
			t.Errorf("%s: %s (%s), want %s", c.name, found[0].Outcome, found[0].Why, c.want)
		}
		if says := strings.Contains(found[0].Why, "PackageManifest of package etcd in catalog olm/curated"); says != (c.want == Undecided) {
			t.Errorf("%s: %s", c.name, found[0].Why)
		}
	}
	for rule, want := range map[string]string{`deprecated.bundle == ""`: "it has package, channel, version",
		`deprecated == ""`: "no matching overload"} {
		if f := Define(Meta{Name: "one"}, &constraintv1.ConstraintSpec{Constraints: seed(rule)}).fault(); f == nil ||
			!strings.Contains(f.Message, want) {
			t.Errorf("%s: %+v", rule, f)
		}
	}
}
