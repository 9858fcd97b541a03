package rules

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/constraint"
)

// TestTally counts operators of two namespaces: one is certified, one is not, and of one only the name is known.
func TestTally(t *testing.T) {
	warns := ruleOf("warns", `packageName != "etcd"`, "", constraint.Warn)
	faulty := constraint.Define(constraint.Meta{Name: "faulty"}, `[`, "")
	set := under(certified, warns, faulty)
	installed := func(properties string) Installed {
		csv := &olm.CSV{Metadata: olm.ObjectMeta{Name: "etcd.v0.9.2", Annotations: olm.Annotations{Properties: properties}}}
		i, _ := InstalledBy(csv)
		return i
	}
	namespaces := []*Namespace{
		NewNamespace("a", NamespaceContents{Exists: true, Constraints: set, CSVs: []Installed{
			installed(`{"properties":[{"type":"olm.package","value":{"packageName":"etcd","version":"0.9.2"}},{"type":"certified","value":true}]}`),
		}}),
		NewNamespace("b", NamespaceContents{Exists: true, Constraints: set, CSVs: []Installed{installed(properties("etcd", "0.9.2")), installed("")}}),
		NewNamespace("c", NamespaceContents{Exists: true, Constraints: set}),
	}
	tally := NewTally(slices.Values(namespaces))
	if tally.Installed != 3 {
		t.Errorf("%d are installed, want 3", tally.Installed)
	}
	for _, c := range []struct {
		of   *constraint.Definition
		want []Count
	}{
		{certified, []Count{{Satisfied: 1, Violating: 1, Unknown: 1}}},
		{warns, []Count{{Violating: 2, Unknown: 1}}},
		{faulty, []Count{}},
	} {
		if diff := cmp.Diff(c.want, tally.Of(c.of)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.of.Name, diff)
		}
	}
}
