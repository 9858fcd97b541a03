package compliance

import (
	"testing"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/olm"
)

// copiedFrom adds the copy of an operator that is installed for all namespaces in namespace operators.
func copiedFrom(name string, changes ...func(*Installed)) given {
	return csv(name, append([]func(*Installed){func(c *Installed) {
		c.Origin = &original{
			CSV:     &Installed{CSV: new(*c.CSV), Package: c.Package, Version: c.Version},
			Targets: []string{""},
			Subscriptions: []*olm.Subscription{{
				Metadata: olm.ObjectMeta{Namespace: "operators", Name: "etcd"},
				Spec:     olm.SubscriptionSpec{Package: "etcd", Source: "community", SourceNamespace: "olm"},
				Status:   olm.SubscriptionStatus{InstalledCSV: name},
			}},
		}
		c.Origin.CSV.Metadata.Namespace, c.Origin.CSV.Metadata.CreationTimestamp = "operators", "2026-11-21T09:00:00Z"
		c.CopiedFrom, c.Status.Reason, c.Status.Message = "operators", "Copied",
			"The operator is running in operators but is managing this namespace"
	}}, changes...)...)
}

// uncopied adds such an operator of which OLM creates no copies.
func uncopied(name string, changes ...func(*Installed)) given {
	return copiedFrom(name, append(changes, func(c *Installed) {
		original := *c.Origin.CSV
		original.Origin, original.CopiedFrom = c.Origin, original.Metadata.Namespace
		*c = original
	})...)
}

// origin changes the origin of a copy.
func origin(change func(*original)) func(*Installed) { return func(c *Installed) { change(c.Origin) } }

// broughtBy adds the plan that installed the original of a copy, with a step from a catalog.
func broughtBy(catalog, status string, changes ...func(*olm.InstallPlan)) func(*Installed) {
	return func(c *Installed) {
		p := &olm.InstallPlan{Metadata: olm.ObjectMeta{Namespace: "operators", Name: "install-1",
			CreationTimestamp: "2026-11-21T09:00:00Z"}}
		p.Spec.CSVNames, p.Spec.Approved, p.Status.Phase = []string{c.Metadata.Name}, true, olm.PhaseComplete
		p.Status.Steps = []olm.Step{{Resolving: c.Metadata.Name, Status: status, Resource: olm.StepResource{
			Kind: kindClusterServiceVersion, Name: c.Metadata.Name, CatalogNamespace: "olm", CatalogName: catalog,
		}}}
		for _, change := range changes {
			change(p)
		}
		c.Origin.Plans = append(c.Origin.Plans, p)
	}
}

// mine marks all objects in the namespace as created by this policy.
func mine(in *fixture) {
	for i := range in.Subscriptions {
		in.Subscriptions[i].Metadata.Annotations = olm.Annotations{ManagedBy: "policies.etcd-policy"}
	}
	for i := range in.OperatorGroups {
		recordCreated(in.Policy, in.OperatorGroups[i])
	}
}

// recordCreated records in the status of a policy that the policy created a group.
func recordCreated(op *policyv1beta2.OperatorPolicy, g *olm.OperatorGroup) {
	op.Status.RelatedObjects = append(op.Status.RelatedObjects, policyv1beta2.RelatedObject{
		Object: policyv1beta2.ObjectReference{Kind: kindOperatorGroup,
			Metadata: policyv1beta2.ObjectMetadata{Name: g.Metadata.Name, Namespace: g.Metadata.Namespace}},
		Properties: &policyv1beta2.ObjectProperties{CreatedByPolicy: new(true), UID: g.Metadata.UID},
	})
}

func TestEvaluateExistingInstallation(t *testing.T) {
	available := map[string]string{
		TypeValidPolicySpec: "True PolicyValidated", TypeOperatorGroup: "True ExistingInstallation",
		TypeSubscription: "True ExistingInstallation",
		TypeInstallPlan:  "True ExistingInstallation", TypeClusterServiceVersion: "True Copied",
		TypeCustomResourceDefinition: "True ExistingInstallation",
		TypeDeployment:               "True ExistingInstallation", TypeCatalogSourcesUnhealthy: "False ExistingInstallation",
	}
	ours := []given{enforced, copiedFrom("etcd.v1.2.0"), group("shop-x7", nil, generated),
		subscription("etcd", func(s *olm.Subscription) {
			s.Status.InstalledCSV, s.Metadata.Annotations.ManagedBy = "", ""
		})}
	for _, s := range []scenario{
		{
			name: "29.1 nothing is made", given: []given{enforced, copiedFrom("etcd.v1.2.0"), manifest()},
			want: available,
			says: map[string]string{TypeSubscription: "the operator is installed in namespace operators and available here through its AllNamespaces mode"},
			related: map[string][]string{kindClusterServiceVersion: {"etcd.v1.2.0 Compliant Copied"},
				kindSubscription: nil, kindOperatorGroup: nil,
				kindInstallPlan: {"- Compliant There are no relevant InstallPlans in this namespace"}},
		},
		{
			name:  "R-LP-11 the original counts where copies are disabled",
			given: []given{enforced, uncopied("etcd.v1.2.0"), manifest()},
			want: map[string]string{TypeSubscription: "True ExistingInstallation",
				TypeClusterServiceVersion: "True InstallSucceeded"},
			says: map[string]string{TypeSubscription: "the operator is installed in namespace operators and available here through its AllNamespaces mode"},
		},
		{
			name: "R-LP-11 what has begun is withdrawn for an original",
			given: []given{enforced, uncopied("etcd.v1.2.0"),
				subscription("etcd", func(s *olm.Subscription) { s.Status.InstalledCSV = "" }), mine},
			want:    map[string]string{TypeSubscription: "True ExistingInstallation"},
			actions: []string{"delete Subscription shop/etcd"},
		},
		{
			name: "R-LP-11 what is being installed is not left without its Subscription",
			given: []given{enforced, running, mine, uncopied("etcd.v1.1.0"),
				func(in *fixture) { in.CSVs[0].Status.Phase = "Installing" }},
			want: map[string]string{TypeSubscription: "True SubscriptionMatches"},
		},
		{
			name:  "R-LP-11 two installations are reported",
			given: []given{enforced, running, mine, uncopied("etcd.v1.1.0")},
			want:  map[string]string{TypeClusterServiceVersion: "True InstallSucceeded"},
			says: map[string]string{TypeClusterServiceVersion: "ClusterServiceVersion (etcd.v1.2.0) - install strategy completed with no errors; " +
				"etcd.v1.1.0, installed in namespace operators, serves this namespace as well: remove one of them"},
		},
		{
			name: "29.4 deprecations still count", given: []given{enforced, copiedFrom("etcd.v1.2.0"),
				manifest(func(p *catalog.Package) { p.Deprecation = "old" })},
			want: map[string]string{TypeNoDeprecations: "False PackageDeprecated"},
		},
		{
			name: "30.2 what the policy made for itself goes", given: append(ours[:len(ours):len(ours)], mine),
			want:    available,
			actions: []string{"delete Subscription shop/etcd", "delete OperatorGroup shop/shop-x7"},
			done: []string{"SubscriptionCompliant True ExistingInstallation",
				"OperatorGroupCompliant True ExistingInstallation"},
		},
		{name: "an informing policy removes nothing", given: append(ours[1:len(ours):len(ours)], mine),
			want: available},
		{
			name: "R-LP-10 a Subscription that is not this policy's stays", given: ours, want: available,
			related: map[string][]string{kindSubscription: {"etcd Compliant Resource found as expected"},
				kindOperatorGroup: {"shop-x7 Compliant Resource found as expected"}},
		},
		{
			name: "R-LP-10 the group stays for another Subscription", want: available,
			given: append(ours[:len(ours):len(ours)], mine,
				subscription("vault", func(s *olm.Subscription) { s.Spec.Package = "vault" })),
			actions: []string{"delete Subscription shop/etcd"},
		},
		{
			name: "30.4 a group that was there before stays", want: available,
			given: append(ours[:len(ours):len(ours)], mine,
				func(in *fixture) { in.OperatorGroups[0].Metadata.UID = "another" }),
			actions: []string{"delete Subscription shop/etcd"},
		},
		{
			name: "30.4 a group that has a name of its own stays", want: available,
			given: append(ours[:len(ours):len(ours)], mine,
				func(in *fixture) { in.OperatorGroups[0].Metadata.GenerateName = "" }),
			actions: []string{"delete Subscription shop/etcd"},
		},
		{
			name: "R-RM-2 the group waits until the Subscription is gone", want: available,
			given: append(ours[:len(ours):len(ours)], mine,
				func(in *fixture) { in.Subscriptions[0].Metadata.DeletionTimestamp = "2026-11-21T10:00:00Z" }),
		},
		{
			name: "the version elsewhere is not allowed",
			given: []given{enforced, copiedFrom("etcd.v1.2.0"),
				spec(func(s *policyv1beta2.OperatorPolicySpec) { s.Versions = []string{"etcd.v1.3.0"} })},
			want: map[string]string{TypeClusterServiceVersion: "False UnapprovedVersion",
				TypeSubscription: "True ExistingInstallation"},
		},
		{
			name: "of several copies an allowed one counts",
			given: []given{copiedFrom("etcd.v1.1.0"), copiedFrom("etcd.v1.2.0"), copiedFrom("etcd.v1.9.0"),
				spec(func(s *policyv1beta2.OperatorPolicySpec) { s.Versions = []string{"etcd.v1.2.0"} })},
			related: map[string][]string{kindClusterServiceVersion: {"etcd.v1.2.0 Compliant Copied"}},
		},
		{
			name:    "a policy for certain namespaces installs its own",
			given:   []given{enforced, copiedFrom("etcd.v1.2.0"), policyGroup(targeting(`["shop"]`))},
			actions: []string{"create OperatorGroup shop/scoped", "create Subscription shop/etcd"},
		},
		{
			name: "R-LP-10 so does one with a selector",
			given: []given{enforced, copiedFrom("etcd.v1.2.0"),
				policyGroup(func(g *policyv1beta2.OperatorGroupTemplate) {
					g.Target = &policyv1beta2.OperatorGroupTarget{Selector: raw(`{"matchLabels":{"a":"b"}}`)}
				})},
			actions: []string{"create OperatorGroup shop/scoped", "create Subscription shop/etcd"},
		},
		{
			name: "a copy of another package does not count",
			given: []given{enforced, ready,
				copiedFrom("vault.v1", func(c *Installed) { c.Package, c.Origin.CSV.Package = "vault", "vault" })},
			actions: []string{"create Subscription shop/etcd"},
		},
		{
			name:  "an operator that runs here is not given up for a copy",
			given: []given{enforced, running, mine, copiedFrom("etcd.v1.1.0")},
			want: map[string]string{TypeSubscription: "True SubscriptionMatches",
				TypeClusterServiceVersion: "True InstallSucceeded"},
		},
	} {
		s.run(t)
	}
}

// TestA7StrangerIsNoInstallation covers copies that claim that the operator is installed, but do not count as an
// installation.
func TestA7StrangerIsNoInstallation(t *testing.T) {
	installs := []string{"create Subscription shop/etcd"}
	missing := map[string]string{TypeSubscription: "False SubscriptionMissing",
		TypeClusterServiceVersion: "False ClusterServiceVersionMissing"}
	fromElsewhere := "the required ClusterServiceVersion was not found; etcd.v1.2.0 is installed elsewhere, from another catalog: it runs in namespace operators " +
		"and is available here, but nothing shows that it comes from catalog olm/community"
	stranger := func(name string, changes ...func(*Installed)) scenario {
		return scenario{name: name, given: []given{enforced, ready, manifest(), copiedFrom("etcd.v1.2.0", changes...)},
			want: missing, actions: installs}
	}
	own := []given{
		enforced,
		ready,
		subscription("etcd", func(s *olm.Subscription) { s.Status.InstalledCSV = "" }),
		mine,
	}
	for _, s := range []scenario{
		{
			name: "no Subscription has installed it",
			given: []given{enforced, ready, manifest(),
				copiedFrom("etcd.v1.2.0", origin(func(o *original) { o.Subscriptions = nil }))},
			want: missing, actions: installs,
			says: map[string]string{TypeClusterServiceVersion: fromElsewhere},
		},
		stranger("its Subscription names another catalog",
			origin(func(o *original) { o.Subscriptions[0].Spec.Source = "evil" })),
		stranger("its Subscription names a catalog of that name in another namespace",
			origin(func(o *original) { o.Subscriptions[0].Spec.SourceNamespace = "operators" })),
		stranger("its Subscription is to another package",
			origin(func(o *original) { o.Subscriptions[0].Spec.Package = "vault" })),
		stranger("two Subscriptions disagree", origin(func(o *original) {
			o.Subscriptions = append(o.Subscriptions, new(*o.Subscriptions[0]))
			o.Subscriptions[1].Spec.Source = "evil"
		})),
		stranger("its Subscription was moved to the right catalog afterwards", broughtBy("evil", "Created")),
		stranger("it is older than the plan, and its Subscription follows it all the same",
			broughtBy("community", "Present",
				func(p *olm.InstallPlan) { p.Metadata.CreationTimestamp = "2026-11-21T09:00:01Z" })),
		stranger("it is not what its plan brought", origin(func(o *original) { o.Drifted = true })),
		stranger("the plan waits for approval", broughtBy("community", "Unknown",
			func(p *olm.InstallPlan) { p.Spec.Approved = false })),
		{
			name: "an original without a copy, of another catalog",
			given: []given{enforced, ready, manifest(),
				uncopied("etcd.v1.2.0", origin(func(o *original) { o.Subscriptions[0].Spec.Source = "evil" }))},
			want: missing, actions: installs,
			says: map[string]string{TypeClusterServiceVersion: fromElsewhere},
		},
		stranger("there is no original", func(c *Installed) { c.Origin = nil }),
		stranger("the original is a copy", origin(func(o *original) { o.CSV.CopiedFrom = "shop" })),
		stranger("the original is being deleted",
			origin(func(o *original) { o.CSV.Metadata.DeletionTimestamp = "2026-11-21T10:00:00Z" })),
		stranger("the original says that it is another package", origin(func(o *original) { o.CSV.Package = "vault" })),
		stranger("the original serves other namespaces", origin(func(o *original) { o.Targets = []string{"operators"} })),
		stranger("OLM installs nothing there", origin(func(o *original) { o.Targets = nil })),
		{
			name: "the policy's own Subscription is not withdrawn for it",
			given: append(own[:len(own):len(own)], manifest(),
				copiedFrom("etcd.v9.9.9", origin(func(o *original) { o.Subscriptions = nil }))),
			want: map[string]string{TypeSubscription: "True SubscriptionMatches"},
		},
		{
			name: "nor for a version that the policy does not allow",
			given: append(own[:len(own):len(own)], manifest(), copiedFrom("etcd.v9.9.9"),
				spec(func(s *policyv1beta2.OperatorPolicySpec) { s.VersionRange = "1.2.0" }),
				func(in *fixture) { in.CSVs[0].Origin.CSV.Version = "9.9.9" },
				manual),
			want: map[string]string{TypeSubscription: "True SubscriptionMatches"},
		},
		{
			name: "a copy in the place of what OLM would install is reported",
			given: append(own[:len(own):len(own)], manifest(),
				copiedFrom("etcd.v1.2.0", origin(func(o *original) { o.Subscriptions = nil })),
				func(in *fixture) { in.Subscriptions[0].Status.InstalledCSV = "etcd.v1.2.0" }),
			says: map[string]string{TypeClusterServiceVersion: "the required ClusterServiceVersion etcd.v1.2.0 was not found" + fromElsewhere[len("the required ClusterServiceVersion was not found"):] +
				"; OLM cannot install etcd.v1.2.0 here while the copy of that name from namespace operators is in its place"},
		},
		{
			name: "a policy that names no catalog takes one from any",
			given: []given{enforced, defaults, manifest(),
				copiedFrom("etcd.v1.2.0", origin(func(o *original) { o.Subscriptions = nil }))},
			want: map[string]string{TypeSubscription: "True ExistingInstallation",
				TypeClusterServiceVersion: "True Copied"},
		},
		{
			name:  "one whose plan is there and says the same counts",
			given: []given{enforced, manifest(), copiedFrom("etcd.v1.2.0", broughtBy("community", "Created"))},
			want:  map[string]string{TypeSubscription: "True ExistingInstallation"},
		},
	} {
		s.run(t)
	}
}
