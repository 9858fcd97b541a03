package constraint

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/facts"
)

func TestJudge(t *testing.T) {
	unknown := func(a Attributes) *Bundle {
		b := etcd("certified", "true")
		b.Unknown = a
		if a&Properties != 0 {
			b.Properties = nil
		}
		return b
	}
	gvk := `{"gvk":{"group":"etcd.database.coreos.com","version":"v1beta2","kind":"EtcdCluster"}}`
	other := `{"gvk":{"group":"a","version":"v1","kind":"B"}}`
	old := `{"package":{"packageName":"etcd","versionRange":"<0.9.0"}}`
	for _, c := range []struct {
		name, constraint string
		bundle           *Bundle
		want             Result
	}{
		{name: "certified", constraint: seed(`properties.exists(p, p.type == "certified")`),
			bundle: etcd("certified", "true")},
		{name: "not certified", constraint: seed(`properties.exists(p, p.type == "certified")`), bundle: etcd(),
			want: Result{Outcome: Violated, Message: "says no", Rule: `properties.exists(p, p.type == "certified")`}},
		{name: "error at run time", constraint: seed(`properties.all(p, p.value.version != "")`),
			bundle: etcd("x", "{}"),
			want: Result{Outcome: Failed, Message: "says no", Rule: `properties.all(p, p.value.version != "")`,
				Why: "no such key: version"}},
		{name: "version that cannot be read", constraint: seed(`semver_compare(version, "x") > 0`), bundle: etcd(),
			want: Result{Outcome: Failed, Message: "says no", Rule: `semver_compare(version, "x") > 0`,
				Why: `semver_compare: "x" is not a version`}},
		{name: "an error is absorbed by a true alternative",
			constraint: seed(`properties.exists(p, p.value.version == "0.9.4")`), bundle: etcd("x", "1")},
		{name: "numbers are doubles",
			constraint: seed(`properties.exists(p, p.type == "n" && p.value == 3 && type(p.value) == double)`),
			bundle:     etcd("n", "3")},

		{name: "properties unknown", constraint: seed(`properties.exists(p, p.type == "certified")`),
			bundle: unknown(Properties),
			want: Result{Outcome: Undecided, Message: "says no", Rule: `properties.exists(p, p.type == "certified")`,
				Why: "the properties of the bundle are not known", Attributes: Properties}},
		{name: "decided without the properties",
			constraint: seed(`catalog.name == "curated" || properties.exists(p, p.type == "certified")`),
			bundle:     unknown(Properties)},
		{name: "refused without the properties",
			constraint: seed(`catalog.name == "other" && properties.exists(p, p.type == "certified")`),
			bundle:     unknown(Properties),
			want: Result{Outcome: Violated, Message: "says no",
				Rule: `catalog.name == "other" && properties.exists(p, p.type == "certified")`}},
		{name: "two unknown", constraint: seed(`version == "1" && channel == "x"`), bundle: unknown(Version | Channel),
			want: Result{Outcome: Undecided, Message: "says no", Rule: `version == "1" && channel == "x"`,
				Why: "the version and the channel are not known", Attributes: Version | Channel}},
		{name: "unknown but not asked for", constraint: seed(`packageName == "etcd"`),
			bundle: unknown(OfBundle &^ Package)},

		{name: "package", constraint: olmConstraint(`{"package":{"packageName":"etcd","versionRange":">=0.9.0"}}`),
			bundle: etcd()},
		{name: "package out of range",
			constraint: olmConstraint(
				`{"failureMessage":"too old","package":{"packageName":"etcd","versionRange":">=1.0.0"}}`), bundle: etcd(),
			want: Result{Outcome: Violated, Message: "too old", Rule: `package etcd in range ">=1.0.0"`}},
		{name: "package by its property only",
			constraint: olmConstraint(`{"package":{"packageName":"etcd","versionRange":">=0.9.0"}}`),
			bundle:     &Bundle{Bundle: olm.Bundle{Properties: etcd().Properties}}},
		{name: "package without its version",
			constraint: olmConstraint(`{"package":{"packageName":"etcd","versionRange":">=0.9.0"}}`),
			bundle:     &Bundle{Bundle: olm.Bundle{Package: "etcd"}, Unknown: Version | Properties},
			want: Result{Outcome: Undecided, Rule: `package etcd in range ">=0.9.0"`, Why: "the version is not known",
				Attributes: Version}},
		{name: "another package without its version",
			constraint: olmConstraint(`{"package":{"packageName":"etcd","versionRange":">=0.9.0"}}`),
			bundle:     &Bundle{Bundle: olm.Bundle{Package: "vault"}, Unknown: Version | Properties},
			want:       Result{Outcome: Violated, Rule: `package etcd in range ">=0.9.0"`}},
		{name: "gvk", constraint: olmConstraint(gvk), bundle: etcd()},
		{name: "gvk missing", constraint: olmConstraint(other), bundle: etcd(),
			want: Result{Outcome: Violated, Rule: "gvk a/v1 B"}},
		{name: "gvk unknown", constraint: olmConstraint(other), bundle: unknown(Properties),
			want: Result{Outcome: Undecided, Rule: "gvk a/v1 B", Why: "the properties of the bundle are not known",
				Attributes: Properties}},

		{name: "all", constraint: olmConstraint(`{"all":{"constraints":[` + gvk +
			`,{"package":{"packageName":"etcd","versionRange":">=0.9.0"}}]}}`), bundle: etcd()},
		{name: "all names the part", constraint: olmConstraint(`{"failureMessage":"both","all":{"constraints":[` + gvk +
			`,` + other + `]}}`), bundle: etcd(),
			want: Result{Outcome: Violated, Message: "both", Rule: "gvk a/v1 B"}},
		{name: "message of the part",
			constraint: olmConstraint(
				`{"all":{"constraints":[{"failureMessage":"part","gvk":{"group":"a","version":"v1","kind":"B"}}]}}`),
			bundle: etcd(),
			want:   Result{Outcome: Violated, Message: "part", Rule: "gvk a/v1 B"}},
		{name: "any", constraint: olmConstraint(`{"any":{"constraints":[` + other + `,` + gvk + `]}}`), bundle: etcd()},
		{name: "any of none", constraint: olmConstraint(`{"any":{"constraints":[` + other + `,` + old + `]}}`),
			bundle: etcd(),
			want:   Result{Outcome: Violated, Rule: `any of (gvk a/v1 B; package etcd in range "<0.9.0")`}},
		{name: "not", constraint: olmConstraint(`{"not":{"constraints":[` + other + `,` + old + `]}}`), bundle: etcd()},
		{name: "not names the part", constraint: olmConstraint(`{"not":{"constraints":[` + other + `,` + gvk + `]}}`),
			bundle: etcd(),
			want:   Result{Outcome: Violated, Rule: "none of (gvk etcd.database.coreos.com/v1beta2 EtcdCluster)"}},
		{name: "empty all", constraint: olmConstraint(`{"all":{"constraints":[]}}`), bundle: etcd()},
		{name: "empty any", constraint: olmConstraint(`{"any":{"constraints":[]}}`), bundle: etcd(),
			want: Result{Outcome: Violated, Rule: "any of ()"}},
		{name: "empty not", constraint: olmConstraint(`{"not":{"constraints":[]}}`), bundle: etcd()},
		{name: "not of unknown", constraint: olmConstraint(`{"not":{"constraints":[` + other + `]}}`),
			bundle: unknown(Properties),
			want: Result{Outcome: Undecided, Rule: "gvk a/v1 B", Why: "the properties of the bundle are not known",
				Attributes: Properties}},
		{name: "any decides beside unknown", constraint: olmConstraint(`{"any":{"constraints":[` + other +
			`,{"cel":{"rule":"packageName == 'etcd'"}}]}}`), bundle: unknown(Properties)},
		{name: "all decides beside a failure",
			constraint: olmConstraint(`{"all":{"constraints":[{"cel":{"rule":"properties[9].type == ''"}},` + other +
				`]}}`), bundle: etcd(),
			want: Result{Outcome: Violated, Rule: "gvk a/v1 B"}},
		{name: "not of a failure fails",
			constraint: olmConstraint(`{"not":{"constraints":[{"cel":{"rule":"properties[9].type == ''"}}]}}`),
			bundle:     etcd(),
			want:       Result{Outcome: Failed, Rule: "properties[9].type == ''", Why: "index out of bounds: 9"}},
		{name: "the first kind counts",
			constraint: olmConstraint(
				`{"cel":{"rule":"false"},"gvk":{"group":"etcd.database.coreos.com","version":"v1beta2","kind":"EtcdCluster"}}`), bundle: etcd()},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := judgeOne(t, c.constraint, c.bundle, shop)
			got.Definition, got.Constraint = nil, nil
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestJudgeOthersToo: a failed constraint holds, and the others are still judged, in the order of names and indexes.
func TestJudgeOthersToo(t *testing.T) {
	s := NewSet([]*Definition{
		sound(t, "b", seed(`properties.all(p, p.value.nothing == 1)`, `true`, `false`), ""),
		Define(Meta{Name: "c"}, &constraintv1.ConstraintSpec{Constraints: `[`}),
		sound(t, "a", `[{"type":"olm.constraint","value":{"rule":"channel == 'x'","action":{"id":"warn"}}}]`, ""),
	}, kubeOne)
	found := s.Judge(etcd(), shop, nil)
	var got []string
	for _, f := range found {
		line := f.Definition.Name + " " + f.Outcome.String()
		if f.Constraint != nil {
			line += " " + string(f.Constraint.Action)
		}
		got = append(got, line)
	}
	if diff := cmp.Diff([]string{"a violated warn", "b failed require", "b violated require", "c failed"},
		got); diff != "" {
		t.Error(diff)
	}
}

// TestMessageExpression: its result is the message, the fixed message if it fails, and it is never used for an
// undecided outcome.
func TestMessageExpression(t *testing.T) {
	constraint := func(expression string) string {
		return jsonText([]any{map[string]any{"type": olm.TypeConstraint,
			"value": map[string]any{"rule": `channel == "x"`, "message": "fixed", "messageExpression": expression}}})
	}
	for _, c := range []struct{ expression, want string }{
		{`"channel " + channel + " of " + packageName + " has " + properties.map(p, p.type).join(", ")`,
			"channel stable of etcd has olm.package, olm.gvk"},
		{`"%s is not x".format([channel])`, "stable is not x"},
		{`"found " + properties.filter(p, p.type == "olm.package")[0].value.version`, "found 0.9.4"},
		{`string(properties[7].type)`, "fixed"},
		{`"  "`, "fixed"},
		{`"two\nlines"`, "two lines"},
	} {
		if got := judgeOne(t, constraint(c.expression), etcd(), shop).Message; got != c.want {
			t.Errorf("%s: %q", c.expression, got)
		}
	}
	b := etcd()
	b.Unknown = Channel
	if f := judgeOne(t, constraint(`"channel " + channel`), b, shop); f.Outcome != Undecided || f.Message != "fixed" {
		t.Errorf("%+v", f)
	}
}

func TestBinds(t *testing.T) {
	tenants := seed(`!("tier" in namespaceObject.metadata.labels) || namespaceObject.metadata.labels.tier != "tenant" || catalog.name == "curated"`)
	for _, c := range []struct {
		name, constraint string
		ns               Namespace
		want             bool
	}{
		{"a tenant", tenants, shop, true},
		{"not a tenant", tenants, Namespace{Name: "admin", Labels: map[string]string{"tier": "admin"}}, false},
		{"no labels", tenants, Namespace{Name: "admin"}, false},
		{"labels not known", tenants, Namespace{Name: "admin", Unknown: true}, true},
		{"always true", seed("true"), shop, false},
		{"warns only", `[{"type":"olm.constraint","value":{"rule":"false","action":{"id":"warn"}}}]`, shop, false},
		{"refuses all", seed("false"), shop, true},
		{"fails", seed(`namespaceObject.metadata.labels.nothing == ""`), shop, true},
		{"about the cluster", seed(`semver_compare(cluster.version, "1.30") > 0`), shop, false},
		{"gvk", olmConstraint(`{"gvk":{"group":"a","version":"v1","kind":"B"}}`), shop, true},
		{"ban", olmConstraint(`{"not":{"constraints":[{"gvk":{"group":"a","version":"v1","kind":"B"}}]}}`), shop, true},
		{"only properties", "", shop, false},
		{"faulty", "[", shop, true},
	} {
		s := NewSet([]*Definition{Define(Meta{Name: "one"}, &constraintv1.ConstraintSpec{Constraints: c.constraint})},
			kubeOne)
		for range 2 { // the second time from the cache
			if got := s.Applies(c.ns); got != c.want {
				t.Errorf("%s: %v", c.name, got)
			}
		}
	}
	if (*Set)(nil).Applies(shop) {
		t.Error("no Set binds nothing")
	}
}

func TestCluster(t *testing.T) {
	own := sound(t, "own", "", `[{"type":"olm.k8s","value":{"version":"1.21"}},{"type":"gpu","value":true}]`)
	var got []string
	s := NewSet([]*Definition{own}, kubeOne)
	for _, p := range s.properties {
		got = append(got, p.Type+" "+string(p.Raw))
	}
	if diff := cmp.Diff([]string{`olm.k8s {"version":"1.21"}`, "gpu true", `olm.kubeversion {"version":"1.36.3"}`},
		got); diff != "" {
		t.Error(diff)
	}
	if !s.Empty() || len(s.Definitions()) != 1 || NewSet(nil, kubeOne).Judge(etcd(), shop, nil) != nil {
		t.Error("properties are no constraint")
	}
	var none *Set
	if !none.Empty() || none.Definitions() != nil || none.Judge(etcd(), shop, nil) != nil {
		t.Error("a nil Set has no constraints")
	}

	rule := sound(t, "rule",
		seed(`cluster.properties.exists(p, p.type == "olm.kubeversion" && semver_compare(p.value.version, "1.30") > 0)`), "")
	if found := NewSet([]*Definition{rule}, kubeOne).Judge(etcd(), shop, nil); len(found) != 0 {
		t.Errorf("%+v", found)
	}
	found := NewSet([]*Definition{rule}, facts.Cluster{}).Judge(etcd(), shop, nil)
	if len(found) != 1 || found[0].Outcome != Undecided || found[0].Attributes != ClusterVersion {
		t.Errorf("the version is not known: %+v", found)
	}
	// Both automatic properties are set explicitly: the list is complete without the version.
	by := sound(t, "by-hand", "",
		`[{"type":"olm.k8s","value":{"version":"1.31"}},{"type":"olm.kubeversion","value":{"version":"1.31"}}]`)
	if found := NewSet([]*Definition{rule, by}, facts.Cluster{}).Judge(etcd(), shop, nil); len(found) != 0 {
		t.Errorf("%+v", found)
	}
}

// TestWith: a preview judges by the new definition alone, on the cluster as it would be.
func TestWith(t *testing.T) {
	old := sound(t, "gpu", seed("false"), `[{"type":"gpu","value":"old"}]`)
	other := sound(t, "other", seed("false"), `[{"type":"disk","value":1}]`)
	changed := sound(t, "gpu",
		seed(`cluster.properties.map(p, p.type) == ["gpu", "disk", "olm.k8s", "olm.kubeversion"] && cluster.properties[0].value == "new"`), `[{"type":"gpu","value":"new"}]`)
	with := NewSet([]*Definition{old, other}, kubeOne).With(changed)
	if found := with.Judge(etcd(), shop, nil); len(found) != 0 || len(with.Definitions()) != 1 {
		t.Errorf("%+v", found)
	}
	if found := (*Set)(nil).With(old).Judge(etcd(), shop, nil); len(found) != 1 {
		t.Errorf("%+v", found)
	}
	if faulty := old.WithFault(Fault{Kind: Size, Path: "spec", Message: "too much"}); old.fault() != nil ||
		faulty.fault() == nil {
		t.Error("a fault goes to the copy")
	}
}

// TestRemembered: equal values have the same findings without evaluation, and any difference is detected.
func TestRemembered(t *testing.T) {
	s := NewSet([]*Definition{sound(t, "one", seed(`channel == "x"`), "")}, kubeOne)
	first := s.Judge(etcd(), shop, nil)
	budget := NewBudget(nil)
	if again := s.Judge(etcd(), shop, budget); budget.spent.Load() != 0 || &again[0] != &first[0] {
		t.Error("judged again")
	}
	changed := map[string]func(b *Bundle, ns *Namespace){
		"csv":               func(b *Bundle, _ *Namespace) { b.Name += "x" },
		"package":           func(b *Bundle, _ *Namespace) { b.Package += "x" },
		"version":           func(b *Bundle, _ *Namespace) { b.Version += "x" },
		"channel":           func(b *Bundle, _ *Namespace) { b.Channel = "x" },
		"catalog":           func(b *Bundle, _ *Namespace) { b.Catalog.Name += "x" },
		"catalog namespace": func(b *Bundle, _ *Namespace) { b.Catalog.Namespace += "x" },
		"moved text":        func(b *Bundle, _ *Namespace) { b.Name, b.Package = b.Name+b.Package, "" },
		"properties":        func(b *Bundle, _ *Namespace) { b.Properties[0].Raw = json.RawMessage("1") },
		"type":              func(b *Bundle, _ *Namespace) { b.Properties[0].Type = "x" },
		"rights": func(b *Bundle, _ *Namespace) {
			b.Manifest = manifestOf([]map[string][]string{{"verbs": {"*"}}}, nil)
		},
		"webhooks": func(b *Bundle, _ *Namespace) {
			b.Manifest = manifestOf(nil, []map[string][]string{{"apiGroups": {"*"}}})
		},
		"unknown":    func(b *Bundle, _ *Namespace) { b.Unknown = Channel },
		"deprecated": func(b *Bundle, _ *Namespace) { b.Deprecated.Version = "x" },
		"change":     func(b *Bundle, _ *Namespace) { b.Change = &Change{Digest: "sha256:aa"} },
		"from":       func(b *Bundle, _ *Namespace) { b.Change = &Change{Digest: "sha256:aa", From: "etcd.v0"} },
		"namespace":  func(_ *Bundle, ns *Namespace) { ns.Name = "other" },
		"label":      func(_ *Bundle, ns *Namespace) { ns.Labels = map[string]string{"tier": "x"} },
		"labels":     func(_ *Bundle, ns *Namespace) { ns.Unknown = true },
	}
	for name, change := range changed {
		b, ns, budget := etcd(), shop, NewBudget(nil)
		change(b, &ns)
		if s.Judge(b, ns, budget); budget.spent.Load() == 0 {
			t.Errorf("%s does not count", name)
		}
	}
}

// TestManyRules: the number of rules of RBAC counts in the estimate, and not only the length of their lists: two loops
// over them must not run uncounted (threat G18).
func TestManyRules(t *testing.T) {
	b := etcd()
	rules := make([]map[string][]string, maxSeenElements)
	for i := range rules {
		rules[i] = map[string][]string{"verbs": {"get"}, "resourceNames": {strconv.Itoa(i)}}
	}
	b.Manifest = manifestOf(rules, nil)
	for rule, want := range map[string]Outcome{
		`clusterPermissions.all(a, "get" in a.verbs)`:                                            Satisfied,
		`clusterPermissions.all(a, clusterPermissions.all(b, a.verbs.size() == b.verbs.size()))`: Failed,
		`clusterPermissions.size() == 4096 && clusterPermissions[0].verbs == ["get"]`:            Satisfied,
	} {
		if f := judgeOne(t, seed(rule), b, shop); f.Outcome != want {
			t.Errorf("%s: %s, want %s: %s", rule, f.Outcome, want, f.Why)
		}
	}
}

// TestTooLargeValues: a value that is too large fails only the rules that read it.
func TestTooLargeValues(t *testing.T) {
	long := jsonText(strings.Repeat("x", maxSeenText+1))
	wide := "[" + strings.Repeat("1,", maxSeenElements) + "1]"
	deep := strings.Repeat("[", maxSeenDepth+2) + strings.Repeat("]", maxSeenDepth+2)
	for name, value := range map[string]string{"text": long, "list": wide} {
		b := etcd("big", value, "certified", "true")
		if f := judgeOne(t, seed(`properties.exists(p, p.type == "certified")`), b, shop); f.Outcome != Satisfied {
			t.Errorf("%s: %+v", name, f)
		}
		if f := judgeOne(t, seed(`properties.all(p, p.type != "big" || p.value.size() < 3)`), b,
			shop); f.Outcome != Failed || !strings.Contains(f.Why, "more than") {
			t.Errorf("%s: %+v", name, f)
		}
	}
	b := etcd()
	b.Channel = strings.Repeat("x", maxSeenText+1)
	if f := judgeOne(t, seed(`channel.matches("^(x?){40}$")`), b, shop); f.Outcome != Failed ||
		!strings.Contains(f.Why, "more than") {
		t.Errorf("%+v", f)
	}
	if f := judgeOne(t, seed(`packageName == "etcd"`), b, shop); f.Outcome != Satisfied {
		t.Errorf("%+v", f)
	}
	if f := judgeOne(t, seed(`properties.all(p, p.value != 1)`), etcd("big", deep), shop); f.Outcome != Satisfied {
		t.Errorf("%+v", f)
	}
}
