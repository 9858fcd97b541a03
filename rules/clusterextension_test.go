package rules

import (
	"encoding/json"
	"strings"
	"testing"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/facts"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// extension returns a ClusterExtension of package etcd in namespace shop.
func extension(t testing.TB, version string) *olm.ClusterExtension {
	t.Helper()
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"name": "etcd"},
		"spec": map[string]any{"namespace": "shop", "source": map[string]any{"sourceType": "Catalog",
			"catalog": map[string]any{"packageName": "etcd", "version": version}}}})
	if err != nil {
		t.Fatal(err)
	}
	e, err := olm.Decode[olm.ClusterExtension](raw)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// extensionPolicy returns an enforced policy for package etcd in namespace shop.
func extensionPolicy(edit func(*policyv1beta2.OperatorPolicySpec)) *operatorpolicy.Policy {
	op := &policyv1beta2.OperatorPolicy{}
	op.Namespace, op.Name = "policies", "etcd"
	op.Spec = policyv1beta2.OperatorPolicySpec{RemediationAction: policyv1beta2.Enforce,
		ComplianceType: policyv1beta2.MustHave, UpgradeApproval: policyv1beta2.UpgradeApprovalAutomatic,
		Subscription: policyv1beta2.SubscriptionTemplate{Name: "etcd", Namespace: "shop", Source: "c",
			SourceNamespace: "olm"}}
	edit(&op.Spec)
	return NewOperatorPolicy(op)
}

// TestO61Extensions judges ClusterExtensions that scenarios cannot write, since the API server refuses them first, and
// those for which more has to be known than a scenario shows.
func TestO61Extensions(t *testing.T) {
	offered := &catalog.Package{Name: "etcd", Channels: []catalog.Channel{
		{Name: "stable", Entries: []catalog.Entry{{Name: "etcd.v2", Version: "2.0.0"},
			{Name: "etcd.v1", Version: "1.0.0"}}},
		{Name: "old", Entries: []catalog.Entry{{Name: "etcd.v1", Version: "1.0.0"}, {Name: "etcd.v0"}}},
	}}
	listed := func(entries ...string) func(*policyv1beta2.OperatorPolicySpec) {
		return func(s *policyv1beta2.OperatorPolicySpec) {
			s.Versions = append(s.Versions, entries...)
		}
	}
	forbidden := func(entries ...string) func(*policyv1beta2.OperatorPolicySpec) {
		return func(s *policyv1beta2.OperatorPolicySpec) {
			s.ComplianceType = policyv1beta2.MustNotHave
			listed(entries...)(s)
		}
	}
	none := func(s *policyv1beta2.OperatorPolicySpec) { s.UpgradeApproval = policyv1beta2.UpgradeApprovalNone }
	for _, c := range []struct {
		name    string
		policy  func(*policyv1beta2.OperatorPolicySpec)
		version string
		// installed is the version of etcd that OLM v0 has installed; "" for none.
		installed string
		// want is a part of the refusal; empty if the write is allowed.
		want string
	}{
		{name: "a listed version of two channels", policy: listed("etcd.v1"), version: "1.0.0"},
		{name: "a listed version with white space", policy: listed("etcd.v1"), version: " = 1.0.0 "},
		{name: "a version without a name", policy: listed("etcd.v0"), version: "0.0.0", want: `has no version "0.0.0"`},
		{name: "another listed version", policy: listed("etcd.v1"), version: "2.0.0",
			want: "allowed is 1.0.0 (etcd.v1)"},
		{name: "a listed version outside of the range", policy: func(s *policyv1beta2.OperatorPolicySpec) {
			listed("etcd.v1", "etcd.v2")(s)
			s.VersionRange = ">=2.0.0"
		}, version: "1.0.0", want: "allowed is 2.0.0 (etcd.v2)"},
		{name: "a name with build metadata", policy: listed("etcd.v1"), version: "1.0.0+7"},
		{name: "a pre-release of a listed version", policy: listed("etcd.v1"), version: "1.0.0-rc.1",
			want: "has no version"},
		{name: "a pre-release at the end of a range", policy: func(s *policyv1beta2.OperatorPolicySpec) {
			s.VersionRange = ">=1.0.0"
		}, version: "1.0.0-rc.1", want: "allowed is one version in versionRange"},
		{name: "a forbidden version", policy: forbidden("etcd.v1"), version: "1.0.0", want: "mustnothave for etcd.v1"},
		{name: "a version that is not forbidden", policy: forbidden("etcd.v1"), version: "2.0.0"},
		{name: "a version that the catalog does not have", policy: forbidden("etcd.v1"), version: "3.0.0",
			want: "is held"},
		{name: "a range beside a forbidden version", policy: forbidden("etcd.v1"), version: ">=2.0.0",
			want: "none of etcd.v1"},
		{name: "a version that is forbidden by digest", policy: forbidden("etcd.v1@sha256:" + strings.Repeat("a", 64)),
			version: "1.0.0", want: "mustnothave for"},
		{name: "an upgrade of what OLM v0 has installed", policy: none, version: "2.0.0", installed: "1.0.0",
			want: "the upgrade of etcd.v0-installed to package etcd"},
		{name: "what OLM v0 has installed", policy: none, version: "1.0.0", installed: "1.0.0"},
		{name: "a first installation", policy: none, version: "1.0.0"},
		{name: "a policy for a package that cannot be read", policy: func(s *policyv1beta2.OperatorPolicySpec) {
			s.Subscription.Name = ""
		}, version: "1.0.0", want: "is held"},
	} {
		t.Run(c.name, func(t *testing.T) {
			contents := state.NamespaceContents{Policies: []*operatorpolicy.Policy{extensionPolicy(c.policy)}}
			if c.installed != "" {
				contents.CSVs = []state.Installed{{Bundle: olm.Bundle{Name: "etcd.v0-installed", Package: "etcd", Version: c.installed}}}
			}
			v := JudgeClusterExtension(ClusterExtensionInput{New: extension(t, c.version),
				Namespace: state.NewNamespace("shop", contents),
				Package: func(pkg string, source olm.Catalog) *catalog.Package {
					if pkg != "etcd" || source != (olm.Catalog{Namespace: "olm", Name: "c"}) {
						t.Errorf("package %q of %v is read", pkg, source)
					}
					return offered
				}})
			if got := v.Refusal(); c.want == "" && v.Decision != verdict.Allow || c.want != "" &&
				!strings.Contains(got, c.want) {
				t.Errorf("got %s %q, want %q in it", v.Decision, got, c.want)
			}
			if c.want != "" && v.Decision == verdict.Allow {
				t.Error("it is allowed")
			}
		})
	}
}

// TestO61Constraints judges by the Constraints of the cluster in a namespace that is excluded from judging as well, and
// holds every package while one of them cannot be read.
func TestO61Constraints(t *testing.T) {
	for rule, want := range map[string]verdict.Decision{
		"nonsense(":                 verdict.Hold,
		"packageName != 'etcd'":     verdict.Deny,
		"packageName == 'etcd'":     verdict.Allow,
		"version == '1.0.0'":        verdict.Allow,
		"version != '1.0.0'":        verdict.Deny,
		"csv != 'etcd.v1'":          verdict.Allow, // warns
		"csv != '' && version < ''": verdict.Deny,
	} {
		c := constraint.Define(constraint.Meta{Name: "c"},
			&constraintv1.ConstraintSpec{Constraints: `[{"type":"olm.constraint","value":{"rule":"` + rule + `"}}]`})
		v := JudgeClusterExtension(ClusterExtensionInput{New: extension(t, "1.0.0"),
			Namespace:   state.NewNamespace("excluded", state.NamespaceContents{}),
			Constraints: constraint.NewSet([]*constraint.Definition{c}, facts.Cluster{Version: "1.30.0"})})
		if v.Decision != want || want != verdict.Allow && !strings.Contains(v.Refusal(),
			"(clusterextension/constraint)") {
			t.Errorf("%s: got %s %q, want %s", rule, v.Decision, v.Refusal(), want)
		}
	}
}

// TestO61OtherCatalogs judges ClusterCatalogs of a source that is not known yet: their image is not known either.
func TestO61OtherCatalogs(t *testing.T) {
	registry := constraint.Define(constraint.Meta{Name: "registry"}, &constraintv1.ConstraintSpec{
		Constraints: `[{"type":"olm.constraint","value":{"on":"catalogSource","rule":"source.image == '' || source.registry == 'registry.example'"}}]`})
	set := constraint.NewSet([]*constraint.Definition{registry}, facts.Cluster{Version: "1.30.0"})
	for _, c := range []struct {
		source string
		want   verdict.Decision
	}{
		{`{"type":"Image","image":{"ref":"registry.example/catalog:v1"}}`, verdict.Allow},
		{`{"type":"Image","image":{"ref":"quay.io/catalog:v1"}}`, verdict.Deny},
		{`{"type":"Git"}`, verdict.Hold},
	} {
		made, err := olm.Decode[olm.ClusterCatalog]([]byte(`{"metadata":{"name":"c"},"spec":{"source":` + c.source + `}}`))
		if err != nil {
			t.Fatal(err)
		}
		v := JudgeClusterCatalog(ClusterCatalogInput{New: made, Constraints: set})
		if v.Decision != c.want {
			t.Errorf("%s: got %s %q, want %s", c.source, v.Decision, v.Refusal(), c.want)
		}
	}
}
