package compliance

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/grant"
	"github.com/opgate/opgate/rules/state"
)

// given modifies the input of an evaluation.
type given func(*fixture)

var evaluatedAt = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// fixture is an Input with the contents of its namespace, in a form that tests change.
type fixture struct {
	Input
	NamespaceExists bool
	OperatorGroups  []*olm.OperatorGroup
	Subscriptions   []*olm.Subscription
	CSVs            []*Installed
	contents        state.NamespaceContents
	// read is what is read for the plans of the namespace.
	read func(*state.Namespace) *state.Namespace
}

// Installed is a ClusterServiceVersion. CopiedFrom is the namespace of the original of a copy, and that of the object
// itself for an original in another namespace.
type Installed struct {
	*olm.CSV
	Package, Version string
	CopiedFrom       string
	Origin           *original
}

// original is a ClusterServiceVersion in another namespace, with the contents of that.
type original struct {
	CSV           *Installed
	Drifted       bool
	Targets       []string
	Subscriptions []*olm.Subscription
	Plans         []*olm.InstallPlan
}

// stored returns a ClusterServiceVersion in the form of a snapshot.
func (c *Installed) stored() *olm.CSV {
	c.Bundle = olm.Bundle{Name: c.Metadata.Name, Package: c.Package, Version: c.Version, Spec: &c.Spec}
	if c.CopiedFrom != c.Metadata.Namespace {
		c.Metadata.Labels.CopiedFrom = c.CopiedFrom
	}
	return c.CSV
}

func (o *original) stored() *Origin {
	contents := state.NamespaceContents{Stored: []*olm.CSV{o.CSV.stored()}, Subscriptions: o.Subscriptions,
		Plans: o.Plans}
	if o.Targets != nil {
		g := &olm.OperatorGroup{}
		g.Status.Namespaces = o.Targets
		contents.Groups = []*olm.OperatorGroup{g}
	}
	if o.Drifted {
		csv := o.CSV.CSV
		contents.CSVs = []state.Installed{{Bundle: csv.Bundle}}
		contents.Record = &state.InstallRecord{Operators: []state.RecordedOperator{{CSV: csv.Metadata.Name,
			Digest: "another"}}}
	}
	return &Origin{CSV: o.CSV.CSV, Namespace: state.NewNamespace("operators", contents)}
}

// input returns the Input of the fixture.
func (in *fixture) input() *Input {
	c := in.contents
	c.Exists, c.Groups, c.Subscriptions = in.NamespaceExists, in.OperatorGroups, in.Subscriptions
	in.Origins = map[*olm.CSV]*Origin{}
	for _, i := range in.CSVs {
		csv := i.stored()
		if i.CopiedFrom != "" && i.CopiedFrom == csv.Metadata.Namespace {
			in.Originals = append(in.Originals, csv)
		} else {
			c.Stored = append(c.Stored, csv)
		}
		if i.Origin != nil {
			in.Origins[csv] = i.Origin.stored()
		}
	}
	in.Namespace = state.NewNamespace("shop", c)
	if in.read != nil {
		in.Namespace = in.read(in.Namespace)
	}
	return &in.Input
}

// input is an informing policy for package etcd in namespace shop, from catalog olm/community, with an empty
// namespace.
func input(changes ...given) *Input {
	in := &fixture{NamespaceExists: true, Input: Input{
		Policy: &policyv1beta2.OperatorPolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: "policies", Name: "etcd-policy", UID: "uid-policy",
				Generation: 3},
			Spec: policyv1beta2.OperatorPolicySpec{
				RemediationAction: policyv1beta2.Inform, ComplianceType: policyv1beta2.MustHave,
				UpgradeApproval: policyv1beta2.UpgradeApprovalAutomatic,
				Subscription: policyv1beta2.SubscriptionTemplate{Name: "etcd", Namespace: "shop", Channel: "stable-1.2",
					Source: "community", SourceNamespace: "olm"},
			},
		},
		Cluster: "edge", Now: evaluatedAt, Key: []byte("key"),
		Deployments:   map[string]Deployment{},
		CatalogSource: func(olm.Catalog) *olm.CatalogSource { return nil },
		Package:       func(olm.Catalog) *catalog.Package { return nil },
		Approvals:     map[string]Approval{},
	}}
	for _, change := range changes {
		change(in)
	}
	in.Rules = rules.NewOperatorPolicy(in.Policy).Completed(in.Policy, in.Problems)
	return in.input()
}

func enforced(in *fixture) { in.Policy.Spec.RemediationAction = policyv1beta2.Enforce }

func spec(change func(*policyv1beta2.OperatorPolicySpec)) given {
	return func(in *fixture) { change(&in.Policy.Spec) }
}

func asked(change func(*policyv1beta2.SubscriptionTemplate)) given {
	return func(in *fixture) { change(&in.Policy.Spec.Subscription) }
}

func config(change func(*policyv1beta2.ComplianceConfig)) given {
	return func(in *fixture) { change(&in.Policy.Spec.ComplianceConfig) }
}

func raw(text string) *apiextensionsv1.JSON { return &apiextensionsv1.JSON{Raw: []byte(text)} }

// policyGroup sets an OperatorGroup in the policy.
func policyGroup(changes ...func(*policyv1beta2.OperatorGroupTemplate)) given {
	return func(in *fixture) {
		in.Policy.Spec.OperatorGroup = &policyv1beta2.OperatorGroupTemplate{Name: "scoped"}
		for _, change := range changes {
			change(in.Policy.Spec.OperatorGroup)
		}
	}
}

func group(name string, spec map[string]any, changes ...func(*olm.OperatorGroup)) given {
	return func(in *fixture) {
		g := &olm.OperatorGroup{Metadata: olm.ObjectMeta{Namespace: "shop", Name: name, UID: "uid-" + name}}
		if written, err := json.Marshal(spec); err != nil || spec != nil && json.Unmarshal(written, &g.Spec) != nil {
			panic(fmt.Sprintf("%s cannot be read: %v", written, err))
		}
		for _, change := range changes {
			change(g)
		}
		in.OperatorGroups = append(in.OperatorGroups, g)
	}
}

func generated(g *olm.OperatorGroup) { g.Metadata.GenerateName = "shop-" }

// subscription adds one that conforms to the policy, under any name.
func subscription(name string, changes ...func(*olm.Subscription)) given {
	return func(in *fixture) {
		s := &olm.Subscription{
			Metadata: olm.ObjectMeta{Namespace: "shop", Name: name, UID: "uid-" + name,
				Annotations: olm.Annotations{ManagedBy: "policies.etcd-policy"}, Labels: olm.Labels{Managed: new("")}},
			Spec: olm.SubscriptionSpec{Package: "etcd", Channel: "stable-1.2", Source: "community",
				SourceNamespace: "olm", InstallPlanApproval: olm.ApprovalAutomatic},
			Status: olm.SubscriptionStatus{InstalledCSV: "etcd.v1.2.0", CurrentCSV: "etcd.v1.2.0",
				State: "AtLatestKnown"},
		}
		for _, change := range changes {
			change(s)
		}
		in.Subscriptions = append(in.Subscriptions, s)
	}
}

// configured sets spec.config of the first Subscription.
func configured(config string) given {
	return func(in *fixture) {
		if err := json.Unmarshal([]byte(config), &in.Subscriptions[0].Spec.Config); err != nil {
			panic(err)
		}
	}
}

func csv(name string, changes ...func(*Installed)) given {
	return func(in *fixture) {
		c := &Installed{CSV: &olm.CSV{Metadata: olm.ObjectMeta{Namespace: "shop", Name: name, UID: "uid-" + name},
			Status: olm.CSVStatus{
				Phase: "Succeeded", Reason: "InstallSucceeded", Message: "install strategy completed with no errors",
				Deployments: []string{"etcd-operator"},
			}}, Package: "etcd", Version: "1.2.0"}
		for _, change := range changes {
			change(c)
		}
		in.CSVs = append(in.CSVs, c)
	}
}

func deployment(name string, available bool) given {
	return func(in *fixture) {
		in.Deployments[name] = Deployment{ObjectMeta: olm.ObjectMeta{Namespace: "shop", Name: name, UID: "uid-" + name},
			Available: available}
	}
}

func catalogState(state string) given {
	return func(in *fixture) {
		in.CatalogSource = func(c olm.Catalog) *olm.CatalogSource {
			live := &olm.CatalogSource{Metadata: olm.ObjectMeta{Namespace: c.Namespace, Name: c.Name,
				UID: "uid-catalog"}}
			live.Status.Connection.State = state
			return live
		}
	}
}

// manifest adds the package to catalog olm/community.
func manifest(changes ...func(*catalog.Package)) given {
	return func(in *fixture) {
		p := &catalog.Package{Name: "etcd", Catalog: olm.Catalog{Namespace: "olm", Name: "community"},
			DefaultChannel: "stable-1.2",
			Channels: []catalog.Channel{{Name: "stable-1.2",
				Entries: []catalog.Entry{{Name: "etcd.v1.3.0", Version: "1.3.0"},
					{Name: "etcd.v1.2.0", Version: "1.2.0"}}}}}
		for _, change := range changes {
			change(p)
		}
		in.Package = func(c olm.Catalog) *catalog.Package {
			if c.Name != "" && c.Name != p.Catalog.Name || c.Namespace != "" && c.Namespace != p.Catalog.Namespace {
				return nil
			}
			return p
		}
	}
}

// plans adds InstallPlans to the namespace.
func plans(all ...*olm.InstallPlan) given {
	return func(in *fixture) {
		in.contents.Plans = append(slices.Clone(in.contents.Plans), all...)
	}
}

func plan(name, phase string, csvs ...string) *olm.InstallPlan {
	p := &olm.InstallPlan{}
	p.Metadata = olm.ObjectMeta{Namespace: "shop", Name: name, UID: "uid-" + name}
	p.Spec.CSVNames, p.Spec.Generation, p.Status.Phase = csvs, 1, phase
	return p
}

// running is an operator that is installed and healthy.
func running(in *fixture) {
	for _, change := range []given{
		group("shop-x7", map[string]any{}, generated), subscription("etcd"), csv("etcd.v1.2.0"),
		deployment("etcd-operator", true),
		catalogState("READY"), manifest(), plans(plan("install-a", olm.PhaseComplete, "etcd.v1.2.0")),
		func(in *fixture) { in.Subscriptions[0].Status.InstallPlan.Name = "install-a" },
	} {
		change(in)
	}
}

// scenario is an evaluation with its expected outcome.
type scenario struct {
	name  string
	given []given
	// want has "<status> <reason>" for the types under test.
	want map[string]string
	// says has complete messages by type.
	says map[string]string
	// related has "<name> <compliant> <reason>" for all objects of the kinds under test.
	related map[string][]string
	// actions are all actions, as "<verb> <kind> <namespace>/<name>".
	actions []string
	// done are the conditions after all actions are carried out, as "<type> <status> <reason>".
	done []string
}

func (s *scenario) run(t *testing.T) {
	t.Run(s.name, func(t *testing.T) {
		out := Evaluate(input(s.given...))
		conditions := map[string]Condition{}
		related := map[string][]string{}
		for _, f := range out.Conditions {
			if _, twice := conditions[f.Type]; twice {
				t.Errorf("two conditions of type %s", f.Type)
			}
			conditions[f.Type] = f
			if kindOf[f.Type] != "" {
				related[kindOf[f.Type]] = describeRelated(f.Related)
			}
		}
		for conditionType, want := range s.want {
			f := conditions[conditionType]
			if got := string(f.Status) + " " + f.Reason; got != want {
				t.Errorf("%s is %q, want %q (%s)", conditionType, got, want, f.Message)
			}
		}
		for conditionType, want := range s.says {
			if diff := cmp.Diff(want, conditions[conditionType].Message); diff != "" {
				t.Errorf("%s says (-want +got):\n%s", conditionType, diff)
			}
		}
		for kind, want := range s.related {
			if diff := cmp.Diff(want, related[kind]); diff != "" {
				t.Errorf("related %s (-want +got):\n%s", kind, diff)
			}
		}
		var actions, done []string
		for _, a := range out.Actions {
			actions = append(actions, describeAction(a))
			done = append(done, fmt.Sprintf("%s %s %s", a.Done.Type, a.Done.Status, a.Done.Reason))
		}
		if diff := cmp.Diff(s.actions, actions); diff != "" {
			t.Errorf("actions (-want +got):\n%s", diff)
		}
		if s.done != nil {
			if diff := cmp.Diff(s.done, done); diff != "" {
				t.Errorf("found after the actions (-want +got):\n%s", diff)
			}
		}
	})
}

func describeRelated(related []policyv1beta2.RelatedObject) []string {
	var lines []string
	for _, r := range related {
		lines = append(lines, fmt.Sprintf("%s %s %s", r.Object.Metadata.Name, r.Compliant, r.Reason))
	}
	return lines
}

func verbOf(a Action) string {
	switch {
	case a.Status:
		return "update status"
	case a.Live == nil:
		return "create"
	case a.Object == nil:
		return "delete"
	}
	return "update"
}

func describeAction(a Action) string {
	content := a.Object
	if content == nil {
		content = a.Live
	}
	kind, _ := content["kind"].(string)
	if kind == "" {
		kind = kindOf[a.Done.Type]
	}
	metadata := object(content, "metadata")
	name, _ := metadata["name"].(string)
	if generate, ok := metadata["generateName"].(string); ok {
		name = generate + "*"
	}
	if namespace, ok := metadata["namespace"].(string); ok {
		name = namespace + "/" + name
	}
	return strings.TrimSpace(verbOf(a) + " " + kind + " " + name)
}

var allTypes = []string{TypeValidPolicySpec, TypeOperatorGroup, TypeSubscription, TypeInstallPlan,
	TypeClusterServiceVersion,
	TypeCustomResourceDefinition, TypeDeployment, TypeCatalogSourcesUnhealthy, TypeNoDeprecations,
	TypeMinorChannelUpgradeAvailable}

// Every type has its condition, in the order of the contract, whether the operator is installed or not.
func TestEvaluateOrder(t *testing.T) {
	for name, in := range map[string]*Input{"installed": input(running),
		"elsewhere": input(manifest(), copiedFrom("etcd.v1.2.0"))} {
		var types []string
		for _, f := range Evaluate(in).Conditions {
			types = append(types, f.Type)
		}
		if diff := cmp.Diff(allTypes, types); diff != "" {
			t.Errorf("%s: types (-want +got):\n%s", name, diff)
		}
	}
}

func TestEvaluateHealthy(t *testing.T) {
	healthy := map[string]string{
		TypeValidPolicySpec: "True PolicyValidated", TypeOperatorGroup: "True OperatorGroupMatches",
		TypeSubscription: "True SubscriptionMatches",
		TypeInstallPlan:  "True NoInstallPlansRequiringApproval", TypeClusterServiceVersion: "True InstallSucceeded",
		TypeCustomResourceDefinition: "True RelevantCRDNotFound", TypeDeployment: "True DeploymentsAvailable",
		TypeCatalogSourcesUnhealthy: "False CatalogSourcesFound", TypeNoDeprecations: "True Recommended",
		TypeMinorChannelUpgradeAvailable: "True Recommended",
	}
	for _, s := range []scenario{
		{
			name: "6.1 an informing policy finds what it asks for", given: []given{running}, want: healthy,
			says: map[string]string{
				TypeValidPolicySpec:         "the policy spec is valid",
				TypeOperatorGroup:           "the OperatorGroup matches what is required by the policy",
				TypeSubscription:            "the Subscription matches what is required by the policy",
				TypeInstallPlan:             "no InstallPlans requiring approval were found",
				TypeClusterServiceVersion:   "ClusterServiceVersion (etcd.v1.2.0) - install strategy completed with no errors",
				TypeDeployment:              "All operator Deployments have their minimum availability",
				TypeCatalogSourcesUnhealthy: "CatalogSource was found",
			},
			related: map[string][]string{
				kindOperatorGroup:            {"shop-x7 Compliant Resource found as expected"},
				kindSubscription:             {"etcd Compliant Resource found as expected"},
				kindInstallPlan:              {"install-a Compliant The InstallPlan is Complete"},
				kindClusterServiceVersion:    {"etcd.v1.2.0 Compliant InstallSucceeded"},
				kindCustomResourceDefinition: {"- Inapplicable No relevant CustomResourceDefinitions found"},
				kindDeployment:               {"etcd-operator Compliant Deployment Available"},
				kindCatalogSource:            {"community Compliant Resource found as expected"},
			},
		},
		{name: "21.1 an enforced policy that is met does nothing", given: []given{enforced, running}, want: healthy},
	} {
		s.run(t)
	}
	result := Evaluate(input(running))
	if got := result.InstalledVersion; got != "etcd.v1.2.0" {
		t.Errorf("installed version %q", got)
	}
	for _, f := range result.Conditions {
		for _, o := range f.Related {
			if o.Cluster != "edge" {
				t.Errorf("related %s is on cluster %q, want edge", o.Object.Kind, o.Cluster)
			}
		}
	}
}

func TestEvaluateValidity(t *testing.T) {
	idle := map[string]string{
		TypeValidPolicySpec: "False InvalidPolicySpec", TypeOperatorGroup: "Unknown InvalidPolicySpec",
		TypeSubscription: "Unknown InvalidPolicySpec",
		TypeInstallPlan:  "Unknown InvalidPolicySpec", TypeClusterServiceVersion: "False RelevantCSVNotFound",
		TypeCustomResourceDefinition: "True RelevantCRDNotFound", TypeDeployment: "True NoRelevantDeployments",
		TypeCatalogSourcesUnhealthy: "Unknown InvalidPolicySpec", TypeMinorChannelUpgradeAvailable: "True Skipped",
	}
	for _, s := range []scenario{
		{
			name: "R-LP-1 an enforced policy without a namespace touches nothing, though a Subscription of that name is there",
			given: []given{enforced, running,
				asked(func(s *policyv1beta2.SubscriptionTemplate) { s.Namespace = ""; s.Channel = "beta" })},
			want: idle,
			says: map[string]string{TypeValidPolicySpec: "spec.subscription.namespace: Required value: name the namespace of the operator, since nothing else determines it",
				TypeSubscription: "the status of the Subscription cannot be determined, since the policy is not valid"},
			related: map[string][]string{kindOperatorGroup: nil,
				kindClusterServiceVersion: {"- Inapplicable No relevant ClusterServiceVersion found"},
				kindDeployment:            {"- Inapplicable No relevant deployments found"}},
		},
		{
			name: "R-LP-1 an enforced policy with a broken OperatorGroup touches nothing",
			given: []given{enforced, running, asked(func(s *policyv1beta2.SubscriptionTemplate) { s.Channel = "beta" }),
				policyGroup(func(g *policyv1beta2.OperatorGroupTemplate) { g.Namespace = "other" })},
			want: idle,
		},
		{
			name: "R-LP-1 a mustnothave policy that is not valid removes nothing",
			given: []given{enforced, running, func(in *fixture) {
				in.Policy.Spec.ComplianceType = policyv1beta2.MustNotHave
				in.Problems = []string{"namespace is required in the subscription"}
			}},
			want: map[string]string{TypeValidPolicySpec: "False InvalidPolicySpec",
				TypeDeployment:              "True DeploymentNotApplicable",
				TypeCatalogSourcesUnhealthy: "False CatalogSourceNotApplicable"},
			says: map[string]string{TypeValidPolicySpec: "namespace is required in the subscription"},
		},
		{
			name: "43 template text that does not resolve is the only problem that is told",
			given: []given{enforced, func(in *fixture) {
				in.Problems = []string{"spec.subscription.namespace: no ConfigMap policies/where"}
				in.Policy.Spec.Subscription.Namespace = "{{ fromConfigMap }}"
			}},
			want: idle, says: map[string]string{TypeValidPolicySpec: "spec.subscription.namespace: no ConfigMap policies/where"},
		},
		{
			name:  "43 what is left of a template after resolving is text that is not valid",
			given: []given{asked(func(s *policyv1beta2.SubscriptionTemplate) { s.Source = "{{ x }}" })},
			want:  map[string]string{TypeValidPolicySpec: "False InvalidPolicySpec"},
		},
		{
			name: "template text in place of a structure is told with its path",
			given: []given{enforced, policyGroup(func(g *policyv1beta2.OperatorGroupTemplate) {
				g.TargetNamespaces, g.StaticProvidedAPIs = raw(`"{{ lookup }}"`), raw(`"yes"`)
			}), asked(func(s *policyv1beta2.SubscriptionTemplate) { s.Config = raw(`"{{ lookup }}"`) })},
			want: idle,
			says: map[string]string{TypeValidPolicySpec: `spec.subscription.config: Invalid value: the value of the template at spec.subscription.config is not valid` +
				`; spec.operatorGroup.targetNamespaces: Invalid value: the value of the template at spec.operatorGroup.targetNamespaces is not valid` +
				`; spec.operatorGroup.staticProvidedAPIs: Invalid value: "yes": json: cannot unmarshal string into Go value of type bool`},
		},
		{
			name: "10.2 all problems of an old object are told at once",
			given: []given{enforced, func(in *fixture) {
				in.Policy.Spec.Subscription.InstallPlanApproval = raw(`"Automatic"`)
				in.Policy.Spec.UpgradeApproval = ""
			}},
			want: idle,
			says: map[string]string{TypeValidPolicySpec: `spec.upgradeApproval: Required value; ` +
				`spec.subscription.installPlanApproval: Invalid value: "Automatic": must not be set, since the policy computes it; write spec.upgradeApproval: Automatic or None instead`},
		},
		{
			name:  "19.3 enforced policies for one Subscription do nothing and are all named",
			given: []given{enforced, func(in *fixture) { in.Overlaps = []string{"a.policies", "etcd-policy.policies"} }},
			want:  idle,
			says: map[string]string{TypeValidPolicySpec: "the policy does nothing, because several enforced policies manage the Subscription to etcd in namespace shop: " +
				"a.policies, etcd-policy.policies"},
		},
		{
			name:  "19.1 informing policies may overlap",
			given: []given{running, func(in *fixture) { in.Overlaps = []string{"a.policies", "etcd-policy.policies"} }},
			want:  map[string]string{TypeValidPolicySpec: "True PolicyValidated"},
		},
		{
			name:  "10.5 an informing policy says that the namespace is missing and goes on",
			given: []given{func(in *fixture) { in.NamespaceExists = false }},
			want: map[string]string{TypeValidPolicySpec: "False InvalidPolicySpec",
				TypeSubscription: "False SubscriptionMissing"},
			says: map[string]string{TypeValidPolicySpec: `the operator namespace "shop" does not exist and will not be created, because the policy is not enforced`,
				TypeSubscription: "the required Subscription shop/etcd was not found and will not be created, because the policy is not enforced"},
			related: map[string][]string{kindSubscription: {"etcd NonCompliant Resource not found but should exist"}},
		},
		{
			name:  "1.1 an enforced policy makes namespace, OperatorGroup and Subscription, in this order",
			given: []given{enforced, func(in *fixture) { in.NamespaceExists = false }},
			want: map[string]string{TypeValidPolicySpec: "False InvalidPolicySpec",
				TypeOperatorGroup: "False OperatorGroupMissing", TypeSubscription: "False SubscriptionMissing"},
			says: map[string]string{TypeValidPolicySpec: `the operator namespace "shop" does not exist`},
			actions: []string{"create Namespace shop", "create OperatorGroup shop/shop-*",
				"create Subscription shop/etcd"},
			done: []string{"ValidPolicySpec True PolicyValidated",
				"OperatorGroupCompliant True OperatorGroupCreated", "SubscriptionCompliant True SubscriptionCreated"},
		},
		{
			name:  "G25 without the right an enforced policy makes nothing where the namespace is missing",
			given: []given{enforced, func(in *fixture) { in.NamespaceExists = false }, granted()},
			want: map[string]string{TypeValidPolicySpec: "False InvalidPolicySpec",
				TypeOperatorGroup: "False OperatorGroupMissing", TypeSubscription: "False SubscriptionMissing"},
			says: map[string]string{TypeValidPolicySpec: `the operator namespace "shop" does not exist: opgate may not create namespaces here: chart value rights.namespaces grants it`},
		},
		{
			name:  "G25 without the right the health of Deployments is not known",
			given: []given{running, granted()},
			want:  map[string]string{TypeDeployment: "True NoRelevantDeployments"},
			says:  map[string]string{TypeDeployment: "the health of Deployments is not known: opgate may not read Deployments here: chart value rights.deployments grants it"},
		},
		{
			name: "16.1 a mustnothave policy needs no namespace",
			given: []given{func(in *fixture) {
				in.NamespaceExists = false
				in.Policy.Spec.ComplianceType = policyv1beta2.MustNotHave
			}},
			want: map[string]string{TypeValidPolicySpec: "True PolicyValidated",
				TypeMinorChannelUpgradeAvailable: "True Skipped"},
		},
		{
			name: "2.1 part of a catalog that none with the package has",
			given: []given{manifest(),
				asked(func(s *policyv1beta2.SubscriptionTemplate) { s.Source, s.SourceNamespace = "wrong", "" })},
			want: idle,
			says: map[string]string{TypeValidPolicySpec: `spec.subscription.source: Invalid value: "wrong": the catalog in the policy does not match ` +
				`the one in the PackageManifest of etcd, which is olm/community`},
		},
		{
			name: "2.1 the namespace of a catalog that none with the package has",
			given: []given{enforced, manifest(),
				asked(func(s *policyv1beta2.SubscriptionTemplate) { s.Source, s.SourceNamespace = "", "wrong" })},
			want: idle,
			says: map[string]string{TypeValidPolicySpec: `spec.subscription.sourceNamespace: Invalid value: "wrong": the catalog in the policy does not match ` +
				`the one in the PackageManifest of etcd, which is olm/community`},
		},
		{
			name: "R-LP-6 a wrong catalog is a mismatch once the Subscription says what its catalog is",
			given: []given{running, asked(
				func(s *policyv1beta2.SubscriptionTemplate) { s.Source, s.SourceNamespace = "wrong", "" })},
			want: map[string]string{TypeValidPolicySpec: "True PolicyValidated",
				TypeSubscription: "False SubscriptionMismatch"},
		},
	} {
		s.run(t)
	}
}

// A policy that is not valid retains the related objects of its last valid state.
func TestEvaluateInvalidKeepsRelated(t *testing.T) {
	kept := map[string]bool{}
	for _, f := range Evaluate(input(enforced, running,
		func(in *fixture) { in.Problems = []string{"broken"} })).Conditions {
		kept[kindOf[f.Type]] = f.KeepRelated
	}
	want := []string{kindCatalogSource, kindInstallPlan, kindOperatorGroup, kindSubscription}
	maps.DeleteFunc(kept, func(_ string, keep bool) bool { return !keep })
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(kept))); diff != "" {
		t.Errorf("kinds kept (-want +got):\n%s", diff)
	}
}

// granted withholds all rights but those that are named.
func granted(rights ...string) given {
	return func(in *fixture) { in.Grants, _ = grant.NewSet(rights, nil) }
}
