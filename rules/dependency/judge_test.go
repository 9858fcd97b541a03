package dependency

import (
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	policyv1 "github.com/opgate/opgate/api/policy/v1"
	policyv1beta1 "github.com/opgate/opgate/api/policy/v1beta1"
	"github.com/opgate/opgate/rules/verdict"
)

// policyOf returns a Policy in namespace shop that waits for others, each "<kind> <name> [<state>]".
func policyOf(t testing.TB, name string, dependsOn ...string) *policyv1.Policy {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "metadata: {namespace: shop, name: %s}\nspec:\n  policy-templates:\n  - objectDefinition: {apiVersion: policy.open-cluster-management.io/v1, kind: ConfigurationPolicy, metadata: {name: %s-t}}\n  dependencies:\n", name, name)
	for _, w := range dependsOn {
		words := append(strings.Fields(w), "Compliant")
		fmt.Fprintf(&b, "  - {kind: %s, name: %s, compliance: %s}\n", words[0], words[1], words[2])
	}
	p := &policyv1.Policy{}
	if err := yaml.UnmarshalStrict([]byte(b.String()), p); err != nil {
		t.Fatal(err)
	}
	return p
}

func policySet(name string, members ...policyv1beta1.NonEmptyString) *policyv1beta1.PolicySet {
	s := &policyv1beta1.PolicySet{}
	s.Namespace, s.Name, s.Spec.Policies = "shop", name, members
	return s
}

// TestPoliciesNamedAsAttacks judges Policies beside db, which waits for app, and PolicySet all, which has app.
func TestPoliciesNamedAsAttacks(t *testing.T) {
	graph := newGraph([]*Policy{Read(policyOf(t, "db", "Policy app"))}, []*Set{ReadSet(policySet("all", "app"))})
	changed := func(p *policyv1.Policy, change func(p *policyv1.Policy)) *policyv1.Policy {
		change(p)
		return p
	}
	raw := func(text string) func(p *policyv1.Policy) {
		return func(p *policyv1.Policy) { p.Spec.PolicyTemplates[0].ObjectDefinition.Raw = []byte(text) }
	}
	cycle := "Deny policy shop/app: spec.dependencies[0]: Policy shop/app would wait for itself: Policy shop/app -> Policy shop/db -> Policy shop/app (policy/dependency-cycle): remove one of these dependencies"
	for _, c := range []struct {
		name   string
		policy *policyv1.Policy
		old    *policyv1.Policy
		want   string
	}{
		{name: "waits for nothing", policy: policyOf(t, "app"), want: "Allow"},
		{name: "waits for what is not there", policy: policyOf(t, "app", "Policy gone"), want: "Allow"},
		{name: "closes a circle", policy: policyOf(t, "app", "Policy db"), want: cycle},
		{name: "closes a circle by an edit", policy: policyOf(t, "app", "Policy db"), old: policyOf(t, "app"), want: cycle},
		{name: "edits something else in a circle", policy: policyOf(t, "app", "Policy db", "Policy x"),
			old: policyOf(t, "app", "Policy db"), want: cycle},
		{name: "edits no spec", policy: changed(policyOf(t, "app", "Policy db"),
			func(p *policyv1.Policy) { p.Labels = map[string]string{"a": "b"} }), old: policyOf(t, "app", "Policy db"),
			want: "Allow"},
		{name: "is being deleted", policy: changed(policyOf(t, "app", "Policy db"),
			func(p *policyv1.Policy) { p.DeletionTimestamp = &p.CreationTimestamp }), old: policyOf(t, "app"),
			want: "Allow"},
		{name: "breaks the circle", policy: policyOf(t, "app"), old: policyOf(t, "app", "Policy db"), want: "Allow"},
		{name: "breaks it by disabling", policy: changed(policyOf(t, "app", "Policy db"),
			func(p *policyv1.Policy) { p.Spec.Disabled = true }), old: policyOf(t, "app", "Policy db"), want: "Allow"},
		{name: "through its own set", policy: policyOf(t, "app", "PolicySet all"),
			want: "Deny policy shop/app: spec.dependencies[0]: Policy shop/app would wait for itself: Policy shop/app -> PolicySet shop/all -> Policy shop/app (policy/dependency-cycle): remove one of these dependencies"},
		{name: "for itself behind others", policy: policyOf(t, "app", "Policy x", "Policy app"),
			want: "Deny policy shop/app: spec.dependencies[1]: Policy shop/app would wait for itself: Policy shop/app -> Policy shop/app (policy/dependency-cycle): remove one of these dependencies"},
		{name: "by the template that does not ignore it", policy: changed(policyOf(t, "app"), func(p *policyv1.Policy) {
			on := func(kind, name string) []policyv1.PolicyDependency {
				return []policyv1.PolicyDependency{{Kind: kind, Name: name, Compliance: "Compliant"}}
			}
			first := p.Spec.PolicyTemplates[0]
			first.IgnorePending, first.ExtraDependencies = true, on("Policy", "db")
			second := first.DeepCopy()
			second.IgnorePending, second.ObjectDefinition.Raw = false,
				[]byte(`{"apiVersion":"a/v1","kind":"A","metadata":{"name":"b"}}`)
			p.Spec.PolicyTemplates = append(p.Spec.PolicyTemplates, second)
		}), want: "Deny policy shop/app: spec.policy-templates[1].extraDependencies[0]: Policy shop/app would wait for itself: Policy shop/app -> Policy shop/db -> Policy shop/app (policy/dependency-cycle): remove one of these dependencies"},
		{name: "a template for itself, behind ignorePending",
			policy: changed(policyOf(t, "app", "ConfigurationPolicy app-t"),
				func(p *policyv1.Policy) { p.Spec.PolicyTemplates[0].IgnorePending = true }),
			want: "Deny policy shop/app: spec.dependencies[0]: ConfigurationPolicy shop/app-t would wait for itself: ConfigurationPolicy shop/app-t -> ConfigurationPolicy shop/app-t (policy/dependency-cycle): remove one of these dependencies"},
		{name: "two states", policy: policyOf(t, "app", "Policy x", "Policy x Pending"),
			want: "Deny policy shop/app: spec.dependencies[1]: the Policy waits for Policy shop/x in states Compliant (spec.dependencies[0]) and Pending (spec.dependencies[1]) (policy/dependency-conflict): keep one"},
		{name: "two versions", policy: changed(policyOf(t, "app", "Policy x", "Policy x"), func(p *policyv1.Policy) {
			p.Spec.Dependencies[0].APIVersion,
				p.Spec.Dependencies[1].APIVersion = "policy.open-cluster-management.io/v1",
				"policy.open-cluster-management.io/v9"
		}), want: "Deny policy shop/app: spec.dependencies[1]: the Policy waits for Policy shop/x in API versions v1 (spec.dependencies[0]) and v9 (spec.dependencies[1]) (policy/dependency-duplicate): keep one"},
		{name: "a group without a version", policy: changed(policyOf(t, "app", "Policy x"), func(p *policyv1.Policy) {
			p.Spec.PolicyTemplates[0].ExtraDependencies = []policyv1.PolicyDependency{{APIVersion: "example.com",
				Kind: "A", Name: "a", Compliance: "Pending"}}
		}), want: `Deny policy shop/app: spec.policy-templates[0].extraDependencies[0].apiVersion: Invalid value: "example.com": is not an API version: write "<group>/<version>", for example "policy.open-cluster-management.io/v1", or leave it out for that group (policy/field)`},
		{name: "a name that is no label", policy: changed(policyOf(t, "app"),
			func(p *policyv1.Policy) { p.Name = strings.Repeat("x", 64) }),
			want: "Deny policy shop/" + strings.Repeat("x", 64) + `: metadata.name: Invalid value: "` +
				strings.Repeat("x", 64) +
				`": has 64 characters; the name becomes a label of what the templates make: write at most 63 (policy/field)`},
		{name: "the longest name", policy: changed(policyOf(t, "app"),
			func(p *policyv1.Policy) { p.Name = strings.Repeat("x", 63) }), want: "Allow"},
		{name: "an OperatorPolicy of another namespace",
			policy: changed(policyOf(t, "app", "OperatorPolicy x"),
				func(p *policyv1.Policy) { p.Spec.Dependencies[0].Namespace = "attacker" }),
			want: "Allow warning policy shop/app: spec.dependencies[0].namespace: namespace attacker is ignored for kind OperatorPolicy: OperatorPolicy shop/x is waited for (policy/dependency-namespace): leave the namespace out"},
		{name: "a template of nothing", policy: changed(policyOf(t, "app"), raw(`{}`)),
			want: "Allow warning policy shop/app: spec.policy-templates[0]: objectDefinition has no metadata.name (policy/template): the template is not applied, and the Policy is NonCompliant, until that is fixed"},
		{name: "a template that plays with the terminal", policy: changed(policyOf(t, "app"), raw("[\"\\u001b\xff")),
			want: `Allow warning policy shop/app: spec.policy-templates[0]: objectDefinition cannot be read: unexpected end of JSON input (policy/template): the template is not applied, and the Policy is NonCompliant, until that is fixed`},
		{name: "no template at all", policy: changed(policyOf(t, "app"),
			func(p *policyv1.Policy) { p.Spec.PolicyTemplates = []*policyv1.PolicyTemplate{nil} }),
			want: "Allow warning policy shop/app: spec.policy-templates[0]: the template has no objectDefinition (policy/template): the template is not applied, and the Policy is NonCompliant, until that is fixed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := JudgePolicy(PolicyInput{Policy: c.policy, Old: c.old, Graph: graph})
			if got := policyText(&v); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			for _, r := range append(v.Reasons, v.Warnings...) {
				if r.Field == "" {
					t.Errorf("no field: %+v", r)
				}
			}
		})
	}
	if v := JudgePolicy(PolicyInput{Policy: policyOf(t, "app", "Policy db")}); v.Decision != verdict.Allow {
		t.Error("not allowed, though no cycle is visible")
	}
}

func policyText(v *verdict.Verdict) string {
	s := v.Decision.String()
	if v.Decision != verdict.Allow {
		s += " " + v.Refusal()
	}
	for _, w := range v.WarningTexts() {
		s += " warning " + w
	}
	return s
}

func TestPolicySetsNamedAsAttacks(t *testing.T) {
	graph := newGraph([]*Policy{
		Read(policyOf(t, "app", "PolicySet all")), Read(policyOf(t, "db")), Read(policyOf(t, "web", "Policy app")),
	}, nil)
	const denied = "Deny policyset shop/all: spec.policies[1]: PolicySet shop/all would wait for itself: PolicySet shop/all -> Policy shop/app -> PolicySet shop/all (policyset/dependency-cycle): remove the member, or what it waits for"
	deleting := policySet("all", "app")
	deleting.DeletionTimestamp = &deleting.CreationTimestamp
	for _, c := range []struct {
		name     string
		set, old *policyv1beta1.PolicySet
		want     string
	}{
		{name: "empty", set: policySet("all"), want: "Allow"},
		{name: "members in order", set: policySet("other", "app", "web", "db"), want: "Allow"},
		{name: "members that are not there", set: policySet("all", "gone", "db"), want: "Allow"},
		{name: "a member that waits for it", set: policySet("all", "db", "app"), want: denied},
		{name: "one more member that waits for it", set: policySet("all", "db", "app"), old: policySet("all", "db"),
			want: denied},
		{name: "a member that waits for it through another", set: policySet("all", "web"),
			want: "Deny policyset shop/all: spec.policies[0]: PolicySet shop/all would wait for itself: PolicySet shop/all -> Policy shop/web -> Policy shop/app -> PolicySet shop/all (policyset/dependency-cycle): remove the member, or what it waits for"},
		{name: "was so before", set: policySet("all", "app"), old: policySet("all", "app"), want: "Allow"},
		{name: "is being deleted", set: deleting, want: "Allow"},
	} {
		v := JudgePolicySet(PolicySetInput{Set: c.set, Old: c.old, Graph: graph})
		if got := policyText(&v); got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.name, got, c.want)
		}
	}
	if v := JudgePolicySet(PolicySetInput{Set: policySet("all", "app")}); v.Decision != verdict.Allow {
		t.Error("not allowed, though no cycle is visible")
	}
}
