package dependency

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"

	policyv1 "github.com/opgate/opgate/api/policy/v1"
	"github.com/opgate/opgate/rules/verdict"
)

const seed003 = `
apiVersion: policy.open-cluster-management.io/v1
kind: Policy
metadata: {name: my-complicated-policy, namespace: shop}
spec:
  dependencies:
  - {kind: Policy, name: namespace-foo-setup-policy, compliance: Compliant}
  policy-templates:
  - extraDependencies:
    - {kind: ConfigurationPolicy, name: bar, compliance: NonCompliant}
    objectDefinition:
      apiVersion: policy.open-cluster-management.io/v1
      kind: ConfigurationPolicy
      metadata: {name: fix-bar-in-foo}
      spec: {remediationAction: enforce}
`

func TestReadOfTheSeed(t *testing.T) {
	p := Read(stored(t, seed003))
	if len(p.Templates) != 1 || len(p.Warnings)+len(p.Clashes) > 0 || !p.NamesKnown {
		t.Fatalf("%+v", p)
	}
	want := []string{"ConfigurationPolicy shop/bar NonCompliant", "Policy shop/namespace-foo-setup-policy Compliant"}
	if diff := cmp.Diff(want, refs(p.Templates[0].Dependencies)); diff != "" {
		t.Error(diff)
	}
	if tm := p.Templates[0]; tm.Fault != "" || tm.Name != "fix-bar-in-foo" ||
		tm.Ref.String() != "ConfigurationPolicy shop/fix-bar-in-foo" || tm.Version != "v1" || tm.Suspendable {
		t.Errorf("%+v", tm)
	}
}

// TestReadDependencies: which object a dependency means.
func TestReadDependencies(t *testing.T) {
	for _, c := range []struct{ name, dependency, want, warning string }{
		{name: "no API version is the policy group", dependency: "{kind: Policy, name: db, compliance: Compliant}",
			want: "Policy shop/db Compliant"},
		{name: "a Policy elsewhere", dependency: "{kind: Policy, name: db, namespace: infra, compliance: Compliant}",
			want: "Policy infra/db Compliant"},
		{name: "a PolicySet elsewhere",
			dependency: "{kind: PolicySet, name: db, namespace: infra, compliance: Pending}",
			want:       "PolicySet infra/db Pending"},
		{name: "a dotted name is only a name", dependency: "{kind: Policy, name: infra.db, compliance: Compliant}",
			want: "Policy shop/infra.db Compliant"},
		{name: "an OperatorPolicy of another namespace stands in",
			dependency: "{apiVersion: policy.open-cluster-management.io/v1beta2, kind: OperatorPolicy, name: etcd, namespace: attacker, compliance: Compliant}",
			want:       "OperatorPolicy shop/etcd Compliant v1beta2",
			warning:    "spec.dependencies[0].namespace: namespace attacker is ignored for kind OperatorPolicy: OperatorPolicy shop/etcd is waited for"},
		{name: "a ConfigurationPolicy of another namespace",
			dependency: "{kind: ConfigurationPolicy, name: x, namespace: attacker, compliance: Compliant}",
			want:       "ConfigurationPolicy shop/x Compliant",
			warning:    "spec.dependencies[0].namespace: namespace attacker is ignored for kind ConfigurationPolicy: ConfigurationPolicy shop/x is waited for"},
		{name: "its own namespace needs no warning",
			dependency: "{kind: OperatorPolicy, name: etcd, namespace: shop, compliance: Compliant}",
			want:       "OperatorPolicy shop/etcd Compliant"},
		{name: "a Policy of another group is any kind",
			dependency: "{apiVersion: kyverno.io/v1, kind: ClusterPolicy, name: x, namespace: infra, compliance: Compliant}", want: "ClusterPolicy.kyverno.io infra/x Compliant v1"},
		{name: "any kind elsewhere",
			dependency: "{apiVersion: example.com/v1, kind: Widget, name: w, namespace: infra, compliance: Compliant}",
			want:       "Widget.example.com infra/w Compliant v1"},
		{name: "any kind here", dependency: "{apiVersion: example.com/v1, kind: Widget, name: w, compliance: Compliant}", want: "Widget.example.com shop/w Compliant v1"},
		{name: "a Constraint has no namespace",
			dependency: "{apiVersion: operators.coreos.com/v1, kind: Constraint, name: curated, namespace: infra, compliance: Compliant}", want: "Constraint curated Compliant v1"},
		{name: "nor has one of Gatekeeper",
			dependency: "{apiVersion: constraints.gatekeeper.sh/v1beta1, kind: K8sRequiredLabels, name: all, compliance: Compliant}", want: "K8sRequiredLabels.constraints.gatekeeper.sh all Compliant v1beta1"},
		{name: "a ConstraintTemplate",
			dependency: "{apiVersion: templates.gatekeeper.sh/v1, kind: ConstraintTemplate, name: k8s, namespace: x, compliance: Compliant}", want: "ConstraintTemplate.templates.gatekeeper.sh k8s Compliant v1"},
		{name: "the core group", dependency: "{apiVersion: v1, kind: ConfigMap, name: c, compliance: Compliant}",
			want: "ConfigMap shop/c Compliant v1"},
		{name: "a kind that only begins like a policy",
			dependency: "{kind: PolicyAutomation, name: a, namespace: infra, compliance: Compliant}",
			want:       "PolicyAutomation infra/a Compliant"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := Read(stored(t, spec([]string{c.dependency}, template("t"))))
			if got := refs(p.Templates[0].Dependencies); len(got) != 1 || got[0] != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			warning := ""
			for _, w := range p.Warnings {
				warning += w.Path + ": " + w.Text
			}
			if warning != c.warning {
				t.Errorf("warns %q, want %q", warning, c.warning)
			}
		})
	}
}

func TestUnion(t *testing.T) {
	const v1, beta = "apiVersion: policy.open-cluster-management.io/v1, ",
		"apiVersion: policy.open-cluster-management.io/v1beta1, "
	versioned := func(version, text string) string { return "{" + version + strings.TrimPrefix(on(text), "{") }
	for _, c := range []struct {
		name       string
		own, extra []string
		want       []string
		fault      string
		conflicts  int
		duplicates int
	}{
		{name: "nothing"},
		{name: "both lists", own: []string{on("Policy b")}, extra: []string{on("Policy a")},
			want: []string{"Policy shop/a Compliant", "Policy shop/b Compliant"}},
		{name: "the same twice is harmless", own: []string{on("Policy a"), on("Policy a")},
			extra: []string{on("Policy shop/a")}, want: []string{"Policy shop/a Compliant"}},
		{name: "two states above", own: []string{on("Policy a"), on("Policy a NonCompliant")},
			want: []string{"Policy shop/a Compliant"}, conflicts: 1,
			fault: "waits for Policy shop/a in states Compliant (spec.dependencies[0]) and NonCompliant (spec.dependencies[1]): keep one"},
		{name: "two states, above and below", own: []string{on("Policy a")},
			extra: []string{on("Policy b"), on("Policy a Pending")},
			want:  []string{"Policy shop/a Compliant", "Policy shop/b Compliant"}, conflicts: 1,
			fault: "waits for Policy shop/a in states Compliant (spec.dependencies[0]) and Pending (spec.policy-templates[0].extraDependencies[1]): keep one"},
		{name: "two states below", extra: []string{on("Policy a NonCompliant"), on("Policy a")},
			want: []string{"Policy shop/a NonCompliant"}, conflicts: 1,
			fault: "waits for Policy shop/a in states NonCompliant (spec.policy-templates[0].extraDependencies[0]) and Compliant (spec.policy-templates[0].extraDependencies[1]): keep one"},
		{name: "two states hidden behind a namespace that does not count",
			own:  []string{on("OperatorPolicy a"), on("OperatorPolicy other/a NonCompliant")},
			want: []string{"OperatorPolicy shop/a Compliant"}, conflicts: 1,
			fault: "waits for OperatorPolicy shop/a in states Compliant (spec.dependencies[0]) and NonCompliant (spec.dependencies[1]): keep one"},
		{name: "two states hidden behind API versions",
			own:  []string{versioned(v1, "Policy a"), versioned(beta, "Policy a NonCompliant")},
			want: []string{"Policy shop/a Compliant v1"}, conflicts: 1, duplicates: 1,
			fault: "waits for Policy shop/a in states Compliant (spec.dependencies[0]) and NonCompliant (spec.dependencies[1]): keep one"},
		{name: "two API versions", own: []string{versioned(v1, "Policy a")},
			extra: []string{versioned(beta, "Policy a")}, want: []string{"Policy shop/a Compliant v1"}, duplicates: 1,
			fault: "waits for Policy shop/a in API versions v1 (spec.dependencies[0]) and v1beta1 (spec.policy-templates[0].extraDependencies[0]): keep one"},
		{name: "an API version and none", own: []string{on("Policy a")}, extra: []string{versioned(v1, "Policy a")},
			want: []string{"Policy shop/a Compliant v1"}},
		{name: "not an API version", own: []string{"{apiVersion: a/b/c, kind: Policy, name: a, compliance: Compliant}"},
			want:  []string{"Policy shop/a Compliant"},
			fault: `spec.dependencies[0].apiVersion: Invalid value: "a/b/c": is not an API version: write "<group>/<version>", for example "policy.open-cluster-management.io/v1", or leave it out for that group`},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := Read(stored(t, spec(c.own, template("t", c.extra...))))
			tm := p.Templates[0]
			got := refs(tm.Dependencies)
			if c.name == "not an API version" {
				got = c.want // with any meaning, the fault counts
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			rules := map[verdict.RuleID]int{}
			for _, clash := range p.Clashes {
				rules[clash.Rule]++
			}
			if tm.Fault != c.fault || rules[RulePolicyDependencyConflict] != c.conflicts ||
				rules[RulePolicyDependencyDuplicate] != c.duplicates {
				t.Errorf("fault %q, clashes %v", tm.Fault, p.Clashes)
			}
		})
	}
}

// TestUnionIsPerTemplate: dependencies of one template do not affect the next, and shared ones are reported once.
func TestUnionIsPerTemplate(t *testing.T) {
	p := Read(stored(t, spec([]string{on("Policy a")}, template("one", on("Policy b")),
		template("two", on("Policy b NonCompliant")), template("three"))))
	var got []string
	for _, tm := range p.Templates {
		got = append(got, tm.Fault+strings.Join(refs(tm.Dependencies), ", "))
	}
	want := []string{"Policy shop/a Compliant, Policy shop/b Compliant",
		"Policy shop/a Compliant, Policy shop/b NonCompliant", "Policy shop/a Compliant"}
	if diff := cmp.Diff(want, got); diff != "" || len(p.Clashes) > 0 {
		t.Error(diff, p.Clashes)
	}
	p = Read(stored(t, spec([]string{on("Policy a"), on("Policy a Pending")}, template("one", on("Policy b")),
		template("two", on("Policy c")), template("three"))))
	if len(p.Clashes) != 1 {
		t.Errorf("%d clashes, want the one", len(p.Clashes))
	}
	for _, tm := range p.Templates {
		if !strings.Contains(tm.Fault, "Policy shop/a in states Compliant") {
			t.Errorf("%s: %q", tm.Name, tm.Fault)
		}
	}
}

// TestReadTemplates has every error that a template can have. A faulty template never prevents others from being read.
func TestReadTemplates(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 20_000) + "1" + strings.Repeat("}", 20_000)
	for _, c := range []struct {
		name, raw   string
		called      string
		fault       string
		namesHidden bool
	}{
		{name: "nothing", fault: "the template has no objectDefinition", called: "template-1", namesHidden: true},
		{name: "null", raw: "null", fault: "objectDefinition has no metadata.name", called: "template-1", namesHidden: true},
		{name: "not an object", raw: `["a"]`, fault: "objectDefinition cannot be read: it has the wrong type, array",
			called: "template-1", namesHidden: true},
		{name: "not JSON", raw: `{"kind`, fault: "objectDefinition cannot be read: unexpected end of JSON input",
			called: "template-1", namesHidden: true},
		{name: "no kind", raw: `{"apiVersion":"a/v1","metadata":{"name":"x"}}`, fault: "objectDefinition has no kind",
			called: "x"},
		{name: "the kind in capitals is no kind", raw: `{"apiVersion":"a/v1","Kind":"A","metadata":{"name":"x"}}`,
			fault: "objectDefinition has no kind", called: "x"},
		{name: "no API version", raw: `{"kind":"A","metadata":{"name":"x"}}`,
			fault: "objectDefinition has no apiVersion", called: "x"},
		{name: "no API version either", raw: `{"apiVersion":"a/b/c","kind":"A","metadata":{"name":"x"}}`,
			fault: `objectDefinition has apiVersion a/b/c, which is not "group/version"`, called: "x"},
		{name: "no name", raw: `{"apiVersion":"a/v1","kind":"A","metadata":{"generateName":"x-"}}`,
			fault: "objectDefinition has no metadata.name", called: "template-1", namesHidden: true},
		{name: "a name that is a number", raw: `{"apiVersion":"a/v1","kind":"A","metadata":{"name":5}}`,
			called: "template-1", namesHidden: true,
			fault: "objectDefinition cannot be read: metadata.name has the wrong type, number"},
		{name: "a name that fills the status", raw: `{"apiVersion":"a/v1","kind":"A","metadata":{"name":"` +
			strings.Repeat("x", 300_000) + `"}}`, called: "template-1", namesHidden: true,
			fault: "objectDefinition has a metadata.name of 300000 characters, at most 253 are allowed"},
		{name: "the longest name", raw: `{"apiVersion":"a/v1","kind":"A","metadata":{"name":"` +
			strings.Repeat("x", 253) + `"}}`, called: strings.Repeat("x", 253)},
		{name: "nested until something gives", raw: `{"apiVersion":"a/v1","kind":"A","metadata":{"name":"x"},"spec":` +
			deep + "}", called: "template-1", namesHidden: true,
			fault: "objectDefinition cannot be read: invalid character '{' exceeded max depth"},
		{name: "the name of another one", raw: `{"apiVersion":"a/v1","kind":"A","metadata":{"name":"first"}}`,
			called: "first",
			fault:  "the name first is used by more than one template, spec.policy-templates[0] and [1]: give each its own"},
		{name: "a name that Opgate makes up itself",
			raw: `{"apiVersion":"a/v1","kind":"A","metadata":{"name":"template-1"}}`, called: "template-1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			policy := stored(t, spec(nil, template("first"), template("last")))
			policy.Spec.PolicyTemplates = []*policyv1.PolicyTemplate{policy.Spec.PolicyTemplates[0],
				{ObjectDefinition: runtime.RawExtension{Raw: []byte(c.raw)}}, policy.Spec.PolicyTemplates[1]}
			p := Read(policy)
			tm := p.Templates[1]
			if tm.Name != c.called || tm.Fault != c.fault || p.NamesKnown == c.namesHidden {
				t.Errorf("name %q, fault %q, names known %t", tm.Name, tm.Fault, p.NamesKnown)
			}
			if last := p.Templates[2]; last.Fault != "" || last.Name != "last" || last.Index != 2 {
				t.Errorf("last: %+v", last)
			}
			if first := p.Templates[0]; (first.Fault != "") != (c.called == "first") {
				t.Errorf("first: %+v", first)
			}
		})
	}
	policy := stored(t, spec(nil, template("template-2"), template("template-1"), template("x"), template("x")))
	policy.Spec.PolicyTemplates = append(policy.Spec.PolicyTemplates[:2:2], nil, policy.Spec.PolicyTemplates[2],
		policy.Spec.PolicyTemplates[3])
	var faulty []string
	for _, tm := range Read(policy).Templates {
		if tm.Fault != "" {
			faulty = append(faulty, tm.Name)
		}
	}
	if got := strings.Join(faulty, " "); got != "template-2 x x" {
		t.Errorf("faulty are %s", got) // of the two named template-2, the faulty one
	}
	policy = stored(t, spec(nil, template("template-0"), template("template-0")))
	if p := Read(policy); p.Templates[0].Fault == "" || p.Templates[1].Fault == "" {
		t.Error("a name that looks made up can be used twice, too")
	}
	policy = stored(t, spec(nil, template("first")))
	policy.Spec.PolicyTemplates = append(policy.Spec.PolicyTemplates, nil)
	if p := Read(policy); p.Templates[1].Fault == "" || p.NamesKnown {
		t.Errorf("nil template: %+v", p.Templates[1])
	}
}

func TestReadSuspendableAndHubErrors(t *testing.T) {
	p := Read(stored(t, `spec:
  policy-templates:
  - objectDefinition: {apiVersion: policy.open-cluster-management.io/v1beta2, kind: OperatorPolicy, metadata: {name: a, namespace: elsewhere}}
  - objectDefinition: {apiVersion: operators.coreos.com/v2, kind: Constraint, metadata: {name: b, namespace: elsewhere}}
  - objectDefinition: {apiVersion: example.com/v1, kind: OperatorPolicy, metadata: {name: c}}
    ignorePending: true
  - objectDefinition: {apiVersion: operators.coreos.com/v1alpha1, kind: Subscription, metadata: {name: d, annotations: {policy.open-cluster-management.io/hub-templates-error: no such value}}}
  - objectDefinition: {apiVersion: a/v1, kind: A, metadata: {name: e, annotations: {policy.open-cluster-management.io/hub-templates-error: ""}}}
`))
	var got []string
	for _, tm := range p.Templates {
		got = append(got, fmt.Sprintf("%s suspendable=%t ignored=%t %s%s", tm.Ref, tm.Suspendable, tm.IgnorePending,
			tm.Fault, tm.HubError))
	}
	want := []string{
		"OperatorPolicy shop/a suspendable=true ignored=false ", "Constraint b suspendable=true ignored=false ",
		"OperatorPolicy.example.com shop/c suspendable=false ignored=true ",
		"Subscription shop/d suspendable=false ignored=false no such value",
		"A.a shop/e suspendable=false ignored=false annotation policy.open-cluster-management.io/hub-templates-error is set",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestReadStatus(t *testing.T) {
	p := Read(stored(t, `
metadata: {namespace: shop, name: app, uid: u, generation: 4, deletionTimestamp: "2026-11-21T12:00:00Z"}
spec: {disabled: true, policy-templates: []}
status:
  compliant: Pending
  observedGeneration: 4
  dependencies:
  - {kind: Policy, namespace: shop, name: db, compliance: Compliant, state: NonCompliant, reason: WrongState, templates: [t]}
  - {apiVersion: example.com/v1, kind: Widget, namespace: shop, name: w, compliance: Compliant, reason: NoKind}
`))
	want := []Ref{PolicyRef("shop", "db"), {"example.com", "Widget", "shop", "w"}}
	var got []Ref
	for i := range p.PendingDependencies {
		got = append(got, PendingRef(&p.PendingDependencies[i]))
	}
	if diff := cmp.Diff(want, got); diff != "" || !p.Disabled || !p.Deleting || p.State != Pending ||
		p.ObservedGeneration != 4 || p.Evaluating {
		t.Errorf("%+v %s", p, diff)
	}
	if p = Read(stored(t, `
spec: {policy-templates: []}
status: {conditions: [{type: Compliant, status: "Unknown", reason: NotEvaluated, message: "", lastTransitionTime: null}]}
`)); !p.Evaluating || !p.Observed().Evaluating {
		t.Error("it says that it is being evaluated")
	}
	if o := (*Policy)(nil).Observed(); o.Reason != NotFound || o.Found() {
		t.Errorf("%+v", o)
	}
	if o := (*Set)(nil).Observed(); o.Reason != NotFound {
		t.Errorf("%+v", o)
	}
}

// TestReadLongName: the name becomes a label value, so no object could be created with it.
func TestReadLongName(t *testing.T) {
	policy := stored(t, spec(nil, template("t")))
	policy.Name = strings.Repeat("x", 64)
	if fault := Read(policy).Templates[0].Fault; !strings.Contains(fault, "has 64 characters") ||
		!strings.Contains(fault, "write at most 63") {
		t.Error(fault)
	}
	policy.Name = strings.Repeat("x", 63)
	if fault := Read(policy).Templates[0].Fault; fault != "" {
		t.Error(fault)
	}
}

// TestUnionOfHostileSize: hundreds of dependencies for each of hundreds of templates do not multiply.
func TestUnionOfHostileSize(t *testing.T) {
	policy := stored(t, spec(nil))
	for i := range 500 {
		policy.Spec.Dependencies = append(policy.Spec.Dependencies,
			policyv1.PolicyDependency{Kind: "Policy", Name: fmt.Sprint("p", i), Compliance: policyv1.Compliant})
		policy.Spec.PolicyTemplates = append(policy.Spec.PolicyTemplates, &policyv1.PolicyTemplate{
			ObjectDefinition: runtime.RawExtension{Raw: fmt.Appendf(nil,
				`{"apiVersion":"a/v1","kind":"A","metadata":{"name":"t%d"}}`, i)},
			ExtraDependencies: []policyv1.PolicyDependency{{Kind: "Policy", Name: "one more",
				Compliance: policyv1.Compliant}},
		})
	}
	p := Read(policy)
	total, faults := 0, 0
	for _, tm := range p.Templates {
		total += len(tm.Dependencies)
		if tm.Fault != "" {
			faults++
		}
	}
	if total > maxUnion || faults < 400 || p.Templates[0].Fault != "" {
		t.Errorf("%d dependencies, %d faults, the first %q", total, faults, p.Templates[0].Fault)
	}
	for _, tm := range policy.Spec.PolicyTemplates {
		tm.ExtraDependencies = nil
	}
	p = Read(policy)
	if first, last := p.Templates[0].Dependencies, p.Templates[499].Dependencies; len(last) != 500 ||
		&first[0] != &last[0] || p.Templates[499].Fault != "" {
		t.Error("templates without dependencies of their own share one list")
	}
}

// TestManyObjects: each dependency object is watched, so the number per Policy is bounded.
func TestManyObjects(t *testing.T) {
	policy := stored(t, spec(nil))
	for i := range 3 {
		template := &policyv1.PolicyTemplate{ObjectDefinition: runtime.RawExtension{Raw: fmt.Appendf(nil,
			`{"apiVersion":"a/v1","kind":"A","metadata":{"name":"t%d"}}`, i)}}
		for j := range 500 {
			template.ExtraDependencies = append(template.ExtraDependencies,
				policyv1.PolicyDependency{Kind: "Policy", Name: fmt.Sprintf("p%d-%d", i, j),
					Compliance: policyv1.Compliant})
		}
		policy.Spec.PolicyTemplates = append(policy.Spec.PolicyTemplates, template)
	}
	again := *policy.Spec.PolicyTemplates[1] // an object that is watched already costs nothing
	again.ObjectDefinition.Raw = []byte(`{"apiVersion":"a/v1","kind":"A","metadata":{"name":"again"}}`)
	policy.Spec.PolicyTemplates = append(policy.Spec.PolicyTemplates, &again)
	p := Read(policy)
	for i, want := range []string{"", "",
		"the templates of the Policy wait for more than 1000 objects together: split the Policy", ""} {
		if tm := p.Templates[i]; tm.Fault != want || (len(tm.Dependencies) == 0) != (want != "") {
			t.Errorf("template %d has %d dependencies and fault %q, want %q", i, len(tm.Dependencies), tm.Fault, want)
		}
	}
}

// TestClashesAreBounded: they appear in messages.
func TestClashesAreBounded(t *testing.T) {
	var own []string
	for i := range 300 {
		for v := range 9 {
			own = append(own, fmt.Sprintf(
				"{apiVersion: policy.open-cluster-management.io/v%d, kind: Policy, name: p%d, compliance: %s}", v, i,
				[]State{Compliant, Pending}[v%2]))
		}
	}
	p := Read(stored(t, spec(own, template("t"))))
	if len(p.Clashes) != maxClashes || len(p.Clashes[0].Says) != 2 || len(p.Clashes[1].Says) != 5 {
		t.Errorf("%d clashes: %+v", len(p.Clashes), p.Clashes[:2])
	}
}

func TestScoped(t *testing.T) {
	written := stored(t, `spec:
  dependencies:
  - {apiVersion: example.com/v1, kind: Cluster, name: c, namespace: a, compliance: Compliant}
  - {apiVersion: example.com/v1, kind: Widget, name: w, compliance: Compliant}
  policy-templates:
  - objectDefinition: {apiVersion: example.com/v1, kind: Cluster, metadata: {name: mine}}
    extraDependencies: [{apiVersion: example.com/v1, kind: Cluster, name: c, namespace: b, compliance: NonCompliant}]
  - objectDefinition: {apiVersion: example.com/v1, kind: Widget, metadata: {name: w2}}
  - objectDefinition: {apiVersion: policy.open-cluster-management.io/v1beta1, kind: OperatorPolicy, metadata: {name: o}}
`)
	p := Read(written)
	before := fmt.Sprintf("%+v", *p)
	scoped := p.Scoped(written, func(group, kind string) bool { return group == "example.com" && kind == "Cluster" })
	if got := fmt.Sprintf("%+v", *p); got != before {
		t.Errorf("the Policy itself has changed from\n%s to\n%s", before, got)
	}
	var got []string
	for i, tm := range scoped.Templates {
		if tm.Met != p.Templates[i].Met || i == 2 && tm.Met == "" {
			t.Errorf("replicas that do not know the scopes see other dependencies than %q met: %q", tm.Met, p.Templates[i].Met)
		}
		got = append(got, tm.Ref.String()+": "+strings.Join(refs(tm.Dependencies), ", ")+tm.Fault)
	}
	want := []string{
		"Cluster.example.com mine: Cluster.example.com c Compliant v1, Widget.example.com shop/w Compliant v1" +
			"waits for Cluster.example.com c in states Compliant (spec.dependencies[0]) and NonCompliant (spec.policy-templates[0].extraDependencies[0]): keep one",
		"Widget.example.com shop/w2: Cluster.example.com c Compliant v1, Widget.example.com shop/w Compliant v1",
		"OperatorPolicy shop/o: Cluster.example.com c Compliant v1, Widget.example.com shop/w Compliant v1",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	written = stored(t, "spec: {policy-templates: [{objectDefinition: {apiVersion: example.com/v1, kind: Cluster, metadata: {name: a}}}, {objectDefinition: {apiVersion: a/v1, kind: A, metadata: {name: b}}}]}")
	p = Read(written)
	if scoped := p.Scoped(written, func(_, kind string) bool {
		return kind ==
			"Cluster"
	}); scoped.Templates[0].Ref.Namespace != "" || scoped.Templates[1].Ref.Namespace != "shop" ||
		p.Templates[0].Ref.Namespace != "shop" {
		t.Errorf("%+v", scoped.Templates)
	}
	if same := p.Scoped(written, func(string, string) bool { return false }); same != p {
		t.Error("nothing has changed, so it is the same")
	}
}
