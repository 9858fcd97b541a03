package compliance

import (
	"testing"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
)

// copiedFrom adds the copy of an operator that is installed for all namespaces in namespace operators.
func copiedFrom(name string, changes ...func(*CSV)) given {
	return csv(name, append([]func(*CSV){func(c *CSV) {
		c.CopiedFrom, c.Reason, c.Message = "operators", "Copied", "The operator is running in operators but is managing this namespace"
	}}, changes...)...)
}

// mine marks everything in the namespace as this policy's own.
func mine(in *Input) {
	for i := range in.Subscriptions {
		in.Subscriptions[i].Annotations = map[string]string{managedMark: "policies.etcd-policy"}
	}
	for i := range in.OperatorGroups {
		in.Policy.Status.RelatedObjects = append(in.Policy.Status.RelatedObjects, policyv1beta2.RelatedObject{
			Object:     policyv1beta2.ObjectReference{Kind: kindOperatorGroup, Metadata: policyv1beta2.ObjectMetadata{Name: in.OperatorGroups[i].Name, Namespace: "shop"}},
			Properties: &policyv1beta2.ObjectProperties{CreatedByPolicy: new(true), UID: in.OperatorGroups[i].UID},
		})
	}
}

func TestEvaluateExistingInstallation(t *testing.T) {
	available := map[string]string{
		TypeValidPolicySpec: "True PolicyValidated", TypeOperatorGroup: "True ExistingInstallation", TypeSubscription: "True ExistingInstallation",
		TypeInstallPlan: "True ExistingInstallation", TypeClusterServiceVersion: "True Copied", TypeCustomResourceDefinition: "True ExistingInstallation",
		TypeDeployment: "True ExistingInstallation", TypeCatalogSourcesUnhealthy: "False ExistingInstallation",
	}
	ours := []given{enforced, copiedFrom("etcd.v1.2.0"), group("shop-x7", nil, generated, func(g *OperatorGroup) {
		g.Content = map[string]any{"kind": "OperatorGroup", "metadata": map[string]any{"namespace": "shop", "name": g.Name}}
	}), subscription("etcd", func(s *Subscription) { s.InstalledCSV = "" })}
	for _, s := range []scenario{
		{
			name: "29.1 nothing is made", given: []given{enforced, copiedFrom("etcd.v1.2.0"), manifest()}, want: available,
			says: map[string]string{TypeSubscription: "the operator is installed in namespace operators and available here through its AllNamespaces mode"},
			related: map[string][]string{kindClusterServiceVersion: {"etcd.v1.2.0 Compliant Copied"}, kindSubscription: nil, kindOperatorGroup: nil,
				kindInstallPlan: {"- Compliant There are no relevant InstallPlans in this namespace"}},
		},
		{
			name: "29.4 deprecations still count", given: []given{enforced, copiedFrom("etcd.v1.2.0"), manifest(func(p *Package) { p.Deprecation = "old" })},
			want: map[string]string{TypeNoDeprecations: "False PackageDeprecated"},
		},
		{
			name: "30.2 what the policy made for itself goes", given: append(ours[:len(ours):len(ours)], mine), want: available,
			actions: []string{"delete Subscription shop/etcd", "delete OperatorGroup shop/shop-x7"},
			done:    []string{"SubscriptionCompliant True ExistingInstallation", "OperatorGroupCompliant True ExistingInstallation"},
		},
		{name: "an informing policy removes nothing", given: append(ours[1:len(ours):len(ours)], mine), want: available},
		{
			name: "W18 a Subscription that is not this policy's stays", given: ours, want: available,
			related: map[string][]string{kindSubscription: {"etcd Compliant Resource found as expected"}, kindOperatorGroup: {"shop-x7 Compliant Resource found as expected"}},
		},
		{
			name: "W18 the group stays for another Subscription", want: available,
			given:   append(ours[:len(ours):len(ours)], mine, subscription("vault", func(s *Subscription) { s.Package = "vault" })),
			actions: []string{"delete Subscription shop/etcd"},
		},
		{
			name: "30.4 a group that was there before stays", want: available,
			given:   append(ours[:len(ours):len(ours)], mine, func(in *Input) { in.OperatorGroups[0].UID = "another" }),
			actions: []string{"delete Subscription shop/etcd"},
		},
		{
			name: "30.4 a group that has a name of its own stays", want: available,
			given:   append(ours[:len(ours):len(ours)], mine, func(in *Input) { in.OperatorGroups[0].GenerateName = "" }),
			actions: []string{"delete Subscription shop/etcd"},
		},
		{
			name: "W10 the group waits until the Subscription is gone", want: available,
			given: append(ours[:len(ours):len(ours)], mine, func(in *Input) { in.Subscriptions[0].Deleting = true }),
		},
		{
			name: "the version elsewhere is not allowed", given: []given{enforced, copiedFrom("etcd.v1.2.0"), spec(func(s *policyv1beta2.OperatorPolicySpec) { s.Versions = []string{"etcd.v1.3.0"} })},
			want: map[string]string{TypeClusterServiceVersion: "False UnapprovedVersion", TypeSubscription: "True ExistingInstallation"},
		},
		{
			name: "of several copies an allowed one counts", given: []given{copiedFrom("etcd.v1.1.0"), copiedFrom("etcd.v1.2.0"), copiedFrom("etcd.v1.9.0"),
				spec(func(s *policyv1beta2.OperatorPolicySpec) { s.Versions = []string{"etcd.v1.2.0"} })},
			related: map[string][]string{kindClusterServiceVersion: {"etcd.v1.2.0 Compliant Copied"}},
		},
		{
			name: "a policy for certain namespaces installs its own", given: []given{enforced, copiedFrom("etcd.v1.2.0"), policyGroup(targeting(`["shop"]`))},
			actions: []string{"create OperatorGroup shop/scoped", "create Subscription shop/etcd"},
		},
		{
			name: "W18 so does one with a selector", given: []given{enforced, copiedFrom("etcd.v1.2.0"), policyGroup(func(g *policyv1beta2.OperatorGroupTemplate) {
				g.Target = &policyv1beta2.OperatorGroupTarget{Selector: raw(`{"matchLabels":{"a":"b"}}`)}
			})},
			actions: []string{"create OperatorGroup shop/scoped", "create Subscription shop/etcd"},
		},
		{
			name: "a copy of another package does not count", given: []given{enforced, ready, copiedFrom("vault.v1", func(c *CSV) { c.Package = "vault" })},
			actions: []string{"create Subscription shop/etcd"},
		},
		{
			name: "an operator that runs here is not given up for a copy", given: []given{enforced, running, mine, copiedFrom("etcd.v1.1.0")},
			want: map[string]string{TypeSubscription: "True SubscriptionMatches", TypeClusterServiceVersion: "True InstallSucceeded"},
		},
	} {
		s.run(t)
	}
}
