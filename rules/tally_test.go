package rules

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/state"
)

// TestTally counts operators of two namespaces: one is certified, one is not, and of one only the name is known.
func TestTally(t *testing.T) {
	warns := ruleOf("warns", `packageName != "etcd"`, "", constraint.Warn)
	faulty := constraint.Define(constraint.Meta{Name: "faulty"}, &constraintv1.ConstraintSpec{Constraints: `[`})
	set := under(certified, warns, faulty)
	installed := func(properties string) state.Installed {
		csv := &olm.CSV{Metadata: olm.ObjectMeta{Name: "etcd.v0.9.2",
			Annotations: olm.Annotations{Properties: properties}}}
		i, _ := installedBy(csv)
		return i
	}
	namespaces := []*state.Namespace{
		state.NewNamespace("a", state.NamespaceContents{Exists: true, Constraints: set, CSVs: []state.Installed{
			installed(`{"properties":[{"type":"olm.package","value":{"packageName":"etcd","version":"0.9.2"}},{"type":"certified","value":true}]}`),
		}}),
		state.NewNamespace("b", state.NamespaceContents{Exists: true, Constraints: set,
			CSVs: []state.Installed{installed(properties("etcd", "0.9.2")), installed("")}}),
		state.NewNamespace("c", state.NamespaceContents{Exists: true, Constraints: set}),
	}
	tally := NewTally(slices.Values(namespaces), time.Time{})
	if tally.Installed != 3 {
		t.Errorf("%d are installed, want 3", tally.Installed)
	}
	for _, c := range []struct {
		of   *constraint.Definition
		want []constraintv1.ConstraintCount
	}{
		{certified, []constraintv1.ConstraintCount{{Field: "spec.constraints[0]", Satisfied: 1, Violating: 1, Unknown: 1}}},
		{warns, []constraintv1.ConstraintCount{{Field: "spec.constraints[0]", Violating: 2, Unknown: 1}}},
		{faulty, []constraintv1.ConstraintCount{}},
	} {
		if diff := cmp.Diff(c.want, tally.Of(c.of)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.of.Name, diff)
		}
	}
}

// TestViolators lists the first violators in their order, in whatever order namespaces are counted.
func TestViolators(t *testing.T) {
	two := constraint.Define(constraint.Meta{Name: "two"}, &constraintv1.ConstraintSpec{Constraints: `[
		{"type": "olm.constraint", "value": {"rule": "packageName != \"etcd\"", "message": "not this one", "action": {"id": "require"}}},
		{"type": "olm.constraint", "value": {"rule": "version != \"0.9.2\"", "action": {"id": "warn"}}}]`})
	if len(two.Faults) > 0 {
		t.Fatal(two.Faults)
	}
	set := under(two)
	var namespaces []*state.Namespace
	for i := range 15 {
		csv := &olm.CSV{Metadata: olm.ObjectMeta{Name: "etcd.v0.9.2",
			Annotations: olm.Annotations{Properties: properties("etcd", "0.9.2")}}}
		installed, _ := installedBy(csv)
		namespaces = append(namespaces, state.NewNamespace(fmt.Sprintf("team-%02d", i),
			state.NamespaceContents{Exists: true, Constraints: set, CSVs: []state.Installed{installed}}))
	}
	var first []constraintv1.ConstraintViolator
	for range 2 {
		got := NewTally(slices.Values(namespaces), time.Time{}).Violators(two)
		if len(got) != MaxViolators {
			t.Fatalf("%d are listed", len(got))
		}
		if first == nil {
			first = got
		}
		if diff := cmp.Diff(first, got); diff != "" {
			t.Errorf("in another order:\n%s", diff)
		}
		slices.Reverse(namespaces)
	}
	want := []constraintv1.ConstraintViolator{
		{Namespace: "team-00", ClusterServiceVersion: "etcd.v0.9.2",
			Message: `not this one (it must satisfy packageName != "etcd")`},
		{Namespace: "team-00", ClusterServiceVersion: "etcd.v0.9.2", Message: `it must satisfy version != "0.9.2"`},
		{Namespace: "team-01", ClusterServiceVersion: "etcd.v0.9.2",
			Message: `not this one (it must satisfy packageName != "etcd")`},
	}
	if diff := cmp.Diff(want, first[:3]); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if last := first[MaxViolators-1]; last.Namespace != "team-09" || last.Message != want[1].Message {
		t.Errorf("the last one is %v", last)
	}
}

func TestAttackLongMessageOfViolators(t *testing.T) {
	long := ruleOf("long", `packageName != "etcd"`, "é", constraint.Require)
	long.Constraints[0].Message = "\x1b[2J" + strings.Repeat("é", 40_000)
	csv := &olm.CSV{Metadata: olm.ObjectMeta{Name: "etcd.v0.9.2",
		Annotations: olm.Annotations{Properties: properties("etcd", "0.9.2")}}}
	installed, _ := installedBy(csv)
	shop := state.NewNamespace("shop", state.NamespaceContents{Exists: true, Constraints: under(long),
		CSVs: []state.Installed{installed}})
	got := NewTally(slices.Values([]*state.Namespace{shop}), time.Time{}).Violators(long)
	if len(got) != 1 || len(got[0].Message) > maxViolation || !utf8.ValidString(got[0].Message) ||
		strings.Contains(got[0].Message, "\x1b") {
		t.Errorf("%.600q", got)
	}
}
