package compliance

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/facts"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
)

var hub = olm.Catalog{Namespace: "olm", Name: "operatorhubio-catalog"}

// site is the contents of namespace shop, in a form that tests change.
type site struct {
	policy        *policyv1beta2.OperatorPolicy
	groups        []*olm.OperatorGroup
	subscriptions []*olm.Subscription
	csvs          []*Installed
	plans         []*olm.InstallPlan
	others        []*operatorpolicy.Policy
	record        *state.InstallRecord
	crds          []CRD
	deployments   map[string]Deployment
	now           time.Time
	constraints   *constraint.Set
}

// anObject returns an object with the given finalizers.
func anObject(name string, finalizers ...any) olm.ObjectMeta {
	o := olm.ObjectMeta{Namespace: "shop", Name: name, UID: "uid-" + name}
	if len(finalizers) > 0 {
		o.Finalizers = true
	}
	return o
}

func aCRD(name string, finalizers ...any) CRD {
	crd := CRD{ObjectMeta: anObject(name, finalizers...), Operators: []string{"operators.coreos.com/etcd.shop"}}
	crd.Namespace, crd.CreationTimestamp = "", "2026-11-21T09:00:05Z"
	return crd
}

func aCSV(pkg, version string, finalizers ...any) *Installed {
	csv := &olm.CSV{Metadata: anObject(pkg+".v"+version, finalizers...),
		Status: olm.CSVStatus{Deployments: []string{pkg + "-operator"}}}
	return &Installed{CSV: csv, Package: pkg, Version: version}
}

func aGroup(name, generateName string, finalizers ...any) *olm.OperatorGroup {
	g := &olm.OperatorGroup{Metadata: anObject(name, finalizers...)}
	g.Metadata.GenerateName = generateName
	return g
}

func aSubscription(pkg, installed string, finalizers ...any) *olm.Subscription {
	s := &olm.Subscription{Metadata: anObject(pkg, finalizers...)}
	s.Spec = olm.SubscriptionSpec{Package: pkg, Source: hub.Name, SourceNamespace: hub.Namespace}
	s.Status.InstalledCSV, s.Status.CurrentCSV, s.Status.InstallPlan.Name = installed, installed, "install-"+pkg
	return s
}

func aPlan(name string, generation int64, csvs ...*Installed) *olm.InstallPlan {
	plan := &olm.InstallPlan{Metadata: olm.ObjectMeta{Namespace: "shop", Name: name, UID: "uid-" + name,
		ResourceVersion: "7"}}
	plan.Spec.Generation, plan.Spec.Approved = generation, true
	plan.Status.Phase = "Complete"
	plan.Metadata.CreationTimestamp = "2026-11-21T09:00:00Z"
	plan.Status.InstalledAt = "2026-11-21T09:00:30Z"
	for _, c := range csvs {
		if c.Package == "etcd" {
			plan.Status.Steps = append(plan.Status.Steps,
				definitionStep(c.Metadata.Name, "etcds.example.com", "Created"))
		}
		plan.Spec.CSVNames = append(plan.Spec.CSVNames, c.Metadata.Name)
		plan.Status.BundleLookups = append(plan.Status.BundleLookups,
			olm.BundleLookup{Identifier: c.Metadata.Name, Catalog: hub,
				Properties: `{"properties":[{"type":"olm.package","value":{"packageName":"` + c.Package + `","version":"` +
					c.Version + `"}}]}`})
	}
	return plan
}

// definitionStep is the step of a plan that writes a definition for a ClusterServiceVersion.
func definitionStep(csv, crd, status string) olm.Step {
	return olm.Step{Resolving: csv, Status: status,
		Resource: olm.StepResource{Group: "apiextensions.k8s.io", Kind: kindCustomResourceDefinition, Name: crd}}
}

// definitionsRecorded records that the definitions must be deleted, while the plans that show it still exist.
func definitionsRecorded(s *site) {
	s.policy.Status.ObservedGeneration = s.policy.Generation
	for _, crd := range s.crds {
		s.policy.Status.RelatedObjects = append(s.policy.Status.RelatedObjects, policyv1beta2.RelatedObject{
			Object: policyv1beta2.ObjectReference{Kind: kindCustomResourceDefinition,
				Metadata: policyv1beta2.ObjectMetadata{Name: crd.Name}},
			Properties: &policyv1beta2.ObjectProperties{UID: crd.UID},
			Reason:     relatedNotWanted,
		})
	}
}

// installed is etcd 0.9.4 as OLM installs it, with a policy that forbids it. The defaults of
// removalBehavior are not set.
func installed(edits ...func(*site)) *site {
	op := &policyv1beta2.OperatorPolicy{}
	op.Namespace, op.Name, op.Generation = "policies", "no-etcd", 3
	op.Spec = policyv1beta2.OperatorPolicySpec{
		RemediationAction: policyv1beta2.Enforce, ComplianceType: policyv1beta2.MustNotHave,
		UpgradeApproval: policyv1beta2.UpgradeApprovalNone,
		Subscription:    policyv1beta2.SubscriptionTemplate{Name: "etcd", Namespace: "shop"},
	}
	csv := aCSV("etcd", "0.9.4")
	s := &site{
		policy:        op,
		groups:        []*olm.OperatorGroup{aGroup("shop-x7", "shop-")},
		subscriptions: []*olm.Subscription{aSubscription("etcd", csv.Metadata.Name)},
		csvs:          []*Installed{csv},
		plans:         []*olm.InstallPlan{aPlan("install-etcd", 1, csv)},
		crds:          []CRD{aCRD("etcds.example.com")},
		deployments:   map[string]Deployment{"etcd-operator": {ObjectMeta: anObject("etcd-operator")}},
		now:           time.Date(2026, 11, 21, 10, 0, 0, 123456789, time.UTC),
	}
	for _, edit := range edits {
		edit(s)
	}
	return s
}

func nothing(s *site) {
	s.groups, s.subscriptions, s.csvs, s.plans, s.crds, s.deployments = nil, nil, nil, nil, nil, nil
}

func inform(s *site) { s.policy.Spec.RemediationAction = policyv1beta2.Inform }

func deleteAll(s *site) {
	s.policy.Spec.RemovalBehavior = policyv1beta2.RemovalBehavior{
		OperatorGroups: policyv1beta2.RemovalDeleteIfUnused, Subscriptions: policyv1beta2.RemovalDelete,
		ClusterServiceVersions: policyv1beta2.RemovalDelete,
		InstallPlans:           policyv1beta2.RemovalDelete, CustomResourceDefinitions: policyv1beta2.RemovalDelete,
	}
}

func denying(s *site) { s.policy.Spec.Deletion = policyv1beta2.DeletionDeny }

func keepAll(s *site) {
	s.policy.Spec.RemovalBehavior = policyv1beta2.RemovalBehavior{
		OperatorGroups: policyv1beta2.RemovalKeep, Subscriptions: policyv1beta2.RemovalKeep,
		ClusterServiceVersions: policyv1beta2.RemovalKeep,
		InstallPlans:           policyv1beta2.RemovalKeep, CustomResourceDefinitions: policyv1beta2.RemovalKeep,
	}
}

func fromHub(s *site) {
	s.policy.Spec.Subscription.Source, s.policy.Spec.Subscription.SourceNamespace = hub.Name, hub.Namespace
}

func forbidding(versions ...string) func(*site) {
	return func(s *site) { s.policy.Spec.Versions = versions }
}

func (s *site) input() *Input {
	policy := rules.NewOperatorPolicy(s.policy)
	contents := state.NamespaceContents{Policies: append(s.others, policy), Plans: s.plans, Record: s.record,
		Constraints: s.constraints, Exists: true, Groups: s.groups, Subscriptions: s.subscriptions}
	for _, c := range s.csvs {
		contents.Stored = append(contents.Stored, c.stored())
	}
	return &Input{
		Policy: s.policy, Rules: policy, Namespace: state.NewNamespace("shop", contents), CRDs: s.crds,
		Deployments: s.deployments,
		CatalogSource: func(c olm.Catalog) *olm.CatalogSource {
			if c != hub {
				return nil
			}
			return &olm.CatalogSource{Metadata: olm.ObjectMeta{Namespace: c.Namespace, Name: c.Name, UID: "uid-hub"}}
		},
		Package: func(olm.Catalog) *catalog.Package { return nil },
		Now:     s.now,
	}
}

// rows summarizes an outcome: each condition, its related objects, and the deletions.
func rows(out Outcome) []string {
	var rows []string
	for _, f := range out.Conditions {
		rows = append(rows, strings.TrimSuffix(f.Type, "Compliant")+" "+string(f.Status)+"/"+f.Reason)
		for _, r := range f.Related {
			state, uid := string(r.Compliant), ""
			if state == "" {
				state = "absent"
			}
			if r.Properties != nil {
				uid = " " + r.Properties.UID
			}
			rows = append(rows, "  "+r.Object.Metadata.Namespace+"/"+r.Object.Metadata.Name+" "+state+" "+r.Reason+uid)
		}
	}
	for _, a := range out.Actions {
		meta := a.Live["metadata"].(map[string]any)
		rows = append(rows, verbOf(a)+" "+a.Live["kind"].(string)+" "+meta["name"].(string)+" => "+
			string(a.Done.Status)+"/"+a.Done.Reason)
	}
	return rows
}

func findingOf(t *testing.T, conditions []Condition, conditionType string) Condition {
	t.Helper()
	for _, f := range conditions {
		if f.Type == conditionType {
			return f
		}
	}
	t.Fatalf("no condition of type %s", conditionType)
	return Condition{}
}

// delete carries out one action like the API server.
func (s *site) delete(a Action) {
	name := a.Live["metadata"].(map[string]any)["name"].(string)
	gone := func(o *olm.ObjectMeta) bool {
		if o.Name == name {
			o.DeletionTimestamp = "2026-11-21T10:00:00Z"
		}
		return o.Name == name && !bool(o.Finalizers)
	}
	switch a.Live["kind"] {
	case kindSubscription:
		s.subscriptions = slices.DeleteFunc(slices.Clone(s.subscriptions),
			func(o *olm.Subscription) bool { return gone(&o.Metadata) })
	case kindClusterServiceVersion:
		s.csvs = slices.DeleteFunc(slices.Clone(s.csvs), func(o *Installed) bool { return gone(&o.Metadata) })
	case kindInstallPlan:
		s.plans = slices.DeleteFunc(slices.Clone(s.plans),
			func(p *olm.InstallPlan) bool { return p.Metadata.Name == name })
	case kindCustomResourceDefinition:
		s.crds = slices.DeleteFunc(slices.Clone(s.crds),
			func(o CRD) bool { return o.Name == name && !bool(o.Finalizers) })
		for i := range s.crds {
			gone(&s.crds[i].ObjectMeta)
		}
	case kindOperatorGroup:
		s.groups = slices.DeleteFunc(slices.Clone(s.groups),
			func(o *olm.OperatorGroup) bool { return gone(&o.Metadata) })
	}
}

// turn is one evaluation with its actions and its status, after a round trip through storage.
func (s *site) turn(t *testing.T) (Outcome, *Event) {
	t.Helper()
	in := s.input()
	out := removal(in)
	after := out
	after.Conditions = append([]Condition{validated()}, out.Conditions...)
	for _, a := range out.Actions {
		s.delete(a)
		after.Replace(a.Done)
	}
	status, event := Finish(in, after, 10)
	raw, err := json.Marshal(status)
	if err != nil {
		t.Fatal(err)
	}
	s.policy = s.policy.DeepCopy()
	s.policy.Status = policyv1beta2.OperatorPolicyStatus{}
	if err := json.Unmarshal(raw, &s.policy.Status); err != nil {
		t.Fatal(err)
	}
	s.now = s.now.Add(time.Minute)
	return out, event
}

func TestRemovalRows(t *testing.T) {
	const kept = " is attached to a mustnothave policy, but does not need to be removed"
	for name, c := range map[string]struct {
		site *site
		want []string
	}{
		"12.1 nothing there is compliant": {installed(nothing, inform, deleteAll, fromHub, forbidding("etcd.v0.9.4")),
			[]string{
				"OperatorGroup True/OperatorGroupNotPresent", "  shop/- Compliant Resource not found as expected",
				"Subscription True/SubscriptionNotPresent", "  shop/etcd Compliant Resource not found as expected",
				"InstallPlan True/NoInstallPlansFound",
				"  shop/- Compliant There are no relevant InstallPlans in this namespace",
				"ClusterServiceVersion True/ClusterServiceVersionNotPresent",
				"  shop/- Compliant Resource not found as expected",
				"CustomResourceDefinition True/RelevantCRDNotFound",
				"  /- Inapplicable No relevant CustomResourceDefinitions found",
				"Deployment True/DeploymentNotApplicable",
				"CatalogSourcesUnhealthy False/CatalogSourceNotApplicable",
				"  olm/operatorhubio-catalog Compliant Resource found but will not be handled in mustnothave mode uid-hub",
			}},
		"12.2 inform reports everything and acts on nothing": {installed(inform, func(s *site) {
			s.policy.Spec.RemovalBehavior.CustomResourceDefinitions = policyv1beta2.RemovalDelete
		}), []string{
			"OperatorGroup False/OperatorGroupPresent",
			"  shop/shop-x7 NonCompliant Resource found but should not exist uid-shop-x7",
			"Subscription False/SubscriptionPresent",
			"  shop/etcd NonCompliant Resource found but should not exist uid-etcd",
			"InstallPlan True/InstallPlanNotApplicable",
			"  shop/install-etcd Compliant Resource found but will not be handled in mustnothave mode uid-install-etcd",
			"ClusterServiceVersion False/ClusterServiceVersionPresent",
			"  shop/etcd.v0.9.4 NonCompliant Resource found but should not exist uid-etcd.v0.9.4",
			"CustomResourceDefinition False/CustomResourceDefinitionPresent",
			"  /etcds.example.com NonCompliant Resource found but should not exist uid-etcds.example.com",
			"Deployment True/DeploymentNotApplicable",
			"  shop/etcd-operator Compliant Resource found but will not be handled in mustnothave mode uid-etcd-operator",
			"CatalogSourcesUnhealthy False/CatalogSourceNotApplicable",
			"  olm/operatorhubio-catalog Compliant Resource found but will not be handled in mustnothave mode uid-hub",
		}},
		"12.4 what is kept does not count, and stays": {installed(keepAll), []string{
			"OperatorGroup True/OperatorGroupKept", "  shop/shop-x7 absent The OperatorGroup" + kept + " uid-shop-x7",
			"Subscription True/SubscriptionKept", "  shop/etcd absent The Subscription" + kept + " uid-etcd",
			"InstallPlan True/InstallPlanNotApplicable",
			"  shop/install-etcd Compliant Resource found but will not be handled in mustnothave mode uid-install-etcd",
			"ClusterServiceVersion True/ClusterServiceVersionKept",
			"  shop/etcd.v0.9.4 absent The ClusterServiceVersion" + kept + " uid-etcd.v0.9.4",
			"CustomResourceDefinition True/CustomResourceDefinitionKept",
			"  /etcds.example.com absent The CustomResourceDefinition" + kept + " uid-etcds.example.com",
			"Deployment True/DeploymentNotApplicable",
			"  shop/etcd-operator Compliant Resource found but will not be handled in mustnothave mode uid-etcd-operator",
			"CatalogSourcesUnhealthy False/CatalogSourceNotApplicable",
			"  olm/operatorhubio-catalog Compliant Resource found but will not be handled in mustnothave mode uid-hub",
		}},
		"Deny wins: nothing is deleted, and the status says why": {installed(deleteAll, definitionsRecorded, denying),
			[]string{
				"OperatorGroup False/OperatorGroupPresent",
				"  shop/shop-x7 NonCompliant Resource found but should not exist uid-shop-x7",
				"Subscription False/SubscriptionPresent",
				"  shop/etcd NonCompliant Resource found but should not exist uid-etcd",
				"InstallPlan False/InstallPlanPresent",
				"  shop/install-etcd NonCompliant Resource found but should not exist uid-install-etcd",
				"ClusterServiceVersion False/ClusterServiceVersionPresent",
				"  shop/etcd.v0.9.4 NonCompliant Resource found but should not exist uid-etcd.v0.9.4",
				"CustomResourceDefinition False/CustomResourceDefinitionPresent",
				"  /etcds.example.com NonCompliant Resource found but should not exist uid-etcds.example.com",
				"Deployment True/DeploymentNotApplicable",
				"  shop/etcd-operator Compliant Resource found but will not be handled in mustnothave mode uid-etcd-operator",
				"CatalogSourcesUnhealthy False/CatalogSourceNotApplicable",
				"  olm/operatorhubio-catalog Compliant Resource found but will not be handled in mustnothave mode uid-hub",
			}},
		"the Subscription goes first and alone": {installed(deleteAll, definitionsRecorded), []string{
			"OperatorGroup False/OperatorGroupPresent",
			"  shop/shop-x7 NonCompliant Resource found but should not exist uid-shop-x7",
			"Subscription False/SubscriptionPresent",
			"  shop/etcd NonCompliant Resource found but should not exist uid-etcd",
			"InstallPlan False/InstallPlanPresent",
			"  shop/install-etcd NonCompliant Resource found but should not exist uid-install-etcd",
			"ClusterServiceVersion False/ClusterServiceVersionPresent",
			"  shop/etcd.v0.9.4 NonCompliant Resource found but should not exist uid-etcd.v0.9.4",
			"CustomResourceDefinition False/CustomResourceDefinitionPresent",
			"  /etcds.example.com NonCompliant Resource found but should not exist uid-etcds.example.com",
			"Deployment True/DeploymentNotApplicable",
			"  shop/etcd-operator Compliant Resource found but will not be handled in mustnothave mode uid-etcd-operator",
			"CatalogSourcesUnhealthy False/CatalogSourceNotApplicable",
			"  olm/operatorhubio-catalog Compliant Resource found but will not be handled in mustnothave mode uid-hub",
			"delete Subscription etcd => True/SubscriptionDeleted",
		}},
		"16.1 a namespace that is missing has nothing in it": {installed(nothing,
			func(s *site) { s.policy.Spec.Subscription.Namespace = "gone" }), []string{
			"OperatorGroup True/OperatorGroupNotPresent", "  gone/- Compliant Resource not found as expected",
			"Subscription True/SubscriptionNotPresent", "  gone/etcd Compliant Resource not found as expected",
			"InstallPlan True/NoInstallPlansFound",
			"  gone/- Compliant There are no relevant InstallPlans in this namespace",
			"ClusterServiceVersion True/ClusterServiceVersionNotPresent",
			"  gone/- Compliant Resource not found as expected",
			"CustomResourceDefinition True/RelevantCRDNotFound",
			"  /- Inapplicable No relevant CustomResourceDefinitions found",
			"Deployment True/DeploymentNotApplicable",
			"CatalogSourcesUnhealthy False/CatalogSourceNotApplicable",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, rows(removal(c.site.input()))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestRemovalDenied: what the API server would refuse for other users, Opgate, which it lets pass, does not do either.
func TestRemovalDenied(t *testing.T) {
	out := removal(installed(deleteAll, definitionsRecorded, denying).input())
	const want = "the Subscription shop/etcd is present and cannot be deleted: spec.deletion of OperatorPolicy policies/no-etcd is Deny"
	if got := findingOf(t, out.Conditions, TypeSubscription).Message; got != want || len(out.Actions) > 0 {
		t.Errorf("%q with %d actions, want %q", got, len(out.Actions), want)
	}
	byConstraint := func(s *site) {
		c := &constraintv1.Constraint{}
		c.Name = "keep"
		c.Spec.Deletion = &constraintv1.ConstraintDeletion{Action: policyv1beta2.DeletionDeny}
		s.constraints = constraint.NewSet([]*constraint.Definition{rules.NewDefinition(c, nil)}, facts.Cluster{})
	}
	out = removal(installed(deleteAll, definitionsRecorded, byConstraint).input())
	const also = "the Subscription shop/etcd is present and cannot be deleted: spec.deletion.action of Constraint keep is Deny"
	if got := findingOf(t, out.Conditions, TypeSubscription).Message; got != also || len(out.Actions) > 0 {
		t.Errorf("%q with %d actions, want %q", got, len(out.Actions), also)
	}
	confirms := func(s *site) { s.policy.Spec.Deletion = policyv1beta2.DeletionConfirm }
	if out := removal(installed(deleteAll, definitionsRecorded, confirms).input()); len(out.Actions) != 1 {
		t.Errorf("Confirm keeps a mustnothave policy from removing: %d actions", len(out.Actions))
	}
}

func TestRemovalShowsEachRelatedObjectOnce(t *testing.T) {
	out := removal(installed(fromHub, func(s *site) { s.csvs = append(s.csvs, aCSV("etcd", "0.9.5")) }).input())
	for _, conditionType := range []string{TypeDeployment, TypeCatalogSourcesUnhealthy} {
		if related := findingOf(t, out.Conditions, conditionType).Related; len(related) != 1 {
			t.Errorf("%s: %+v", conditionType, related)
		}
	}
}
