package dependency

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	policyv1 "github.com/opgate/opgate/api/policy/v1"
	policyv1beta1 "github.com/opgate/opgate/api/policy/v1beta1"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 123456789, time.UTC)

// stored returns the Policy shop/app with this spec and status.
func stored(t testing.TB, text string) *policyv1.Policy {
	t.Helper()
	p := &policyv1.Policy{}
	if err := yaml.UnmarshalStrict([]byte(text), p); err != nil {
		t.Fatal(err)
	}
	if p.Name == "" {
		p.Namespace, p.Name, p.UID, p.Generation = "shop", "app", "uid-app", 3
	}
	return p
}

func storedSet(name string, members ...string) *policyv1beta1.PolicySet {
	s := &policyv1beta1.PolicySet{}
	s.Namespace, s.Name, s.Generation = "shop", name, 1
	for _, m := range members {
		s.Spec.Policies = append(s.Spec.Policies, policyv1beta1.NonEmptyString(m))
	}
	return s
}

// template returns a ConfigurationPolicy as a template, for spec.policy-templates.
func template(name string, extra ...string) string {
	s := "  - objectDefinition: {apiVersion: policy.open-cluster-management.io/v1, kind: ConfigurationPolicy, metadata: {name: " + name + "}}\n"
	if len(extra) > 0 {
		s += "    extraDependencies:\n"
		for _, e := range extra {
			s += "    - " + e + "\n"
		}
	}
	return s
}

// on returns a dependency from one line: "Policy db", "Policy shop/db", "Policy db NonCompliant".
func on(text string) string {
	words := strings.Fields(text)
	namespace, name, found := strings.Cut(words[1], "/")
	if !found {
		namespace, name = "", words[1]
	}
	want := "Compliant"
	if len(words) > 2 {
		want = words[2]
	}
	return fmt.Sprintf("{kind: %s, name: %q, namespace: %q, compliance: %s}", words[0], name, namespace, want)
}

// spec returns a spec with these dependencies and templates.
func spec(dependencies []string, templates ...string) string {
	s := "spec:\n"
	if len(dependencies) > 0 {
		s += "  dependencies:\n"
		for _, d := range dependencies {
			s += "  - " + d + "\n"
		}
	}
	return s + "  policy-templates:\n" + strings.Join(templates, "")
}

// waiting returns a Policy shop/<name> that waits for others, as "Policy db", with one template of the name <name>-t.
func waiting(t testing.TB, name string, others ...string) *Policy {
	t.Helper()
	var deps []string
	for _, o := range others {
		deps = append(deps, on(o))
	}
	p := stored(t, "metadata: {namespace: shop, name: "+name+", uid: uid-"+name+", generation: 1}\n"+
		spec(deps, template(name+"-t")))
	return Read(p)
}

func object(t testing.TB, text string) map[string]any {
	t.Helper()
	var o map[string]any
	if err := yaml.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	return o
}

func refs(list []*Dependency) []string {
	var s []string
	for _, d := range list {
		s = append(s, strings.TrimSpace(d.String()+" "+string(d.Want)+" "+d.Version))
	}
	return s
}

func app() Ref { return PolicyRef("shop", "app") }

// dep returns a dependency of a Policy in namespace shop.
func dep(kind, name string, want State) Dependency {
	return Dependency{Ref: Ref{Group: PolicyGroup, Kind: kind, Namespace: "shop", Name: name}, Want: want,
		Path: "spec.dependencies[0]"}
}
