package compliance

import (
	"testing"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/olm"
)

func mayhave(in *fixture) { in.Policy.Spec.ComplianceType = policyv1beta2.MayHave }

func listed(versions ...string) given {
	return spec(func(s *policyv1beta2.OperatorPolicySpec) { s.Versions = versions })
}

// TestEvaluateMayhave has no action but the one that admission takes as well.
func TestEvaluateMayhave(t *testing.T) {
	for _, s := range []scenario{
		{
			name:  "nothing is there, not even the namespace or a group",
			given: []given{enforced, mayhave, func(in *fixture) { in.NamespaceExists = false }, policyGroup()},
			want: map[string]string{
				TypeValidPolicySpec:          "True PolicyValidated",
				TypeOperatorGroup:            "True OperatorGroupNotApplicable",
				TypeSubscription:             "True SubscriptionNotPresent",
				TypeInstallPlan:              "True NoInstallPlansFound",
				TypeClusterServiceVersion:    "True ClusterServiceVersionNotPresent",
				TypeCustomResourceDefinition: "True RelevantCRDNotFound",
				TypeDeployment:               "True NoRelevantDeployments",
				TypeCatalogSourcesUnhealthy:  "False CatalogSourceNotApplicable",
			},
			says: map[string]string{
				TypeSubscription:          "there is no Subscription to etcd in namespace shop, and the policy requires none",
				TypeClusterServiceVersion: "no ClusterServiceVersion of etcd is installed in namespace shop, and the policy requires none",
			},
			related: map[string][]string{kindSubscription: {"etcd Compliant Resource not found as expected"}},
		},
		{
			name:    "the group that the policy created as musthave is not forgotten",
			given:   []given{enforced, mayhave, group("own", nil), mine, group("other", nil)},
			want:    map[string]string{TypeOperatorGroup: "True OperatorGroupNotApplicable"},
			related: map[string][]string{kindOperatorGroup: {"own Compliant Resource found as expected"}},
		},
		{
			name: "a catalog without the package does not count while nothing asks for it",
			given: []given{enforced, mayhave, manifest(),
				asked(func(s *policyv1beta2.SubscriptionTemplate) { s.Source, s.SourceNamespace = "", "wrong" })},
			want: map[string]string{TypeValidPolicySpec: "True PolicyValidated",
				TypeSubscription: "True SubscriptionNotPresent"},
		},
		{
			name:  "an allowed version is installed",
			given: []given{enforced, mayhave, running},
			want: map[string]string{
				TypeSubscription:            "True SubscriptionMatches",
				TypeClusterServiceVersion:   "True InstallSucceeded",
				TypeDeployment:              "True DeploymentsAvailable",
				TypeCatalogSourcesUnhealthy: "False CatalogSourcesFound",
			},
		},
		{
			name: "what admission and Constraints make wait is not written here",
			given: []given{enforced, mayhave, running, listed("etcd.v1.2.0"),
				asked(func(s *policyv1beta2.SubscriptionTemplate) { s.Config = raw(`{"env":[]}`) })},
			want: map[string]string{TypeSubscription: "True SubscriptionMatches",
				TypeClusterServiceVersion: "True InstallSucceeded"},
		},
		{
			name:  "another version is installed, and stays",
			given: []given{enforced, mayhave, running, listed("etcd.v1.0.0"), manual},
			want: map[string]string{TypeClusterServiceVersion: "False UnapprovedVersion",
				TypeSubscription: "True SubscriptionMatches"},
		},
		{
			name: "a Subscription to another channel is reported, and stays",
			given: []given{enforced, mayhave,
				subscription("etcd", func(s *olm.Subscription) { s.Spec.Channel = "alpha" })},
			want: map[string]string{TypeSubscription: "False SubscriptionMismatch"},
			says: map[string]string{TypeSubscription: `the Subscription shop/etcd is not one that the policy allows: ` +
				`spec.channel is "alpha", want "stable-1.2"`},
		},
		{
			name: "a Subscription with another config is reported, and stays",
			given: []given{enforced, mayhave, running, asked(func(s *policyv1beta2.SubscriptionTemplate) {
				s.Config = raw(`{"env":[{"name":"A","value":"b"}]}`)
			})},
			want: map[string]string{TypeSubscription: "False SubscriptionMismatch"},
			says: map[string]string{TypeSubscription: `the Subscription shop/etcd is not one that the policy allows: ` +
				`spec.config is not set, want {"env":[{"name":"A","value":"b"}]}`},
		},
		{
			name: "a first installation that is held is Compliant",
			given: []given{enforced, mayhave, listed("etcd.v1.0.0"), catalogState("READY"),
				subscription("etcd", func(s *olm.Subscription) {
					s.Status.InstalledCSV, s.Status.InstallPlan.Name = "",
						"install-a"
				}),
				manual, plans(plan("install-a", olm.PhaseRequiresApproval, "etcd.v1.2.0"))},
			want: map[string]string{TypeInstallPlan: "True InstallPlanRequiresApproval",
				TypeClusterServiceVersion: "True ClusterServiceVersionNotPresent"},
		},
		{
			name: "OLM still reports that it does not resolve for what is gone",
			given: []given{enforced, mayhave, running, func(in *fixture) {
				in.Subscriptions[0].Status.Conditions = []olm.SubscriptionCondition{{Type: "ResolutionFailed",
					Status: "True", Reason: "ConstraintsNotSatisfiable",
					Message: "constraints not satisfiable: clusterserviceversion etcd.v1.1.0 exists and is not referenced by a subscription, subscription etcd exists"}}
			}},
			want: map[string]string{TypeSubscription: "True SubscriptionMatches"},
			says: map[string]string{TypeSubscription: "the Subscription shop/etcd is one that the policy allows"},
		},
		{
			name: "OLM does not resolve it",
			given: []given{enforced, mayhave, running, func(in *fixture) {
				failing("ConstraintsNotSatisfiable", "constraints not satisfiable: subscription etcd exists")(
					in.Subscriptions[0])
			}},
			want: map[string]string{TypeSubscription: "True SubscriptionMatches"},
			says: map[string]string{TypeSubscription: "the Subscription shop/etcd is one that the policy allows; " +
				"OLM does not resolve it (ConstraintsNotSatisfiable), as its condition ResolutionFailed explains"},
		},
		{
			name:  "several Subscriptions to one package",
			given: []given{enforced, mayhave, subscription("one"), subscription("two")},
			want:  map[string]string{TypeSubscription: "False SubscriptionMismatch"},
		},
		{
			name: "an operator that is down",
			given: []given{enforced, mayhave, running, func(in *fixture) {
				in.Deployments["etcd-operator"] = Deployment{ObjectMeta: olm.ObjectMeta{Namespace: "shop",
					Name: "etcd-operator"}}
			}},
			want: map[string]string{TypeDeployment: "False DeploymentsUnavailable"},
		},
	} {
		s.run(t)
	}
}

// manual makes the Subscriptions wait for approval.
func manual(in *fixture) {
	for i := range in.Subscriptions {
		in.Subscriptions[i].Spec.InstallPlanApproval = olm.ApprovalManual
	}
}
