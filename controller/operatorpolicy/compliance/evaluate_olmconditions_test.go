package compliance

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/olm"
)

// absent is what a scenario wants of a type without a condition.
const absent = " "

// observed sets conditions of the Subscription, as OLM does, to True.
func observed(conditions ...olm.SubscriptionCondition) given {
	return func(in *fixture) {
		for i := range conditions {
			conditions[i].Status = "True"
		}
		in.Subscriptions[0].Status.Conditions = conditions
	}
}

func atLatest(in *fixture) { in.Subscriptions[0].Status.State = "AtLatestKnown" }

func pendingUpgrade(in *fixture) { in.Subscriptions[0].Status.State = olm.StateUpgradePending }

func failedWith(message string) *olm.InstallPlan {
	p := plan("install-b", olm.PhaseFailed, "etcd.v1.3.0")
	p.Status.Message = message
	return p
}

func TestSubscriptionConditions(t *testing.T) {
	waiting := plan("install-b", olm.PhaseRequiresApproval, "etcd.v1.3.0")
	pending := observed(olm.SubscriptionCondition{Type: TypeInstallPlanPending, Reason: olm.PhaseRequiresApproval})
	unpacking := olm.SubscriptionCondition{Type: TypeBundleUnpacking, Reason: "UnpackingInProgress"}
	unpackFailed := olm.SubscriptionCondition{Type: TypeBundleUnpackFailed, Reason: "BundleUnpackFailed",
		Message: "bundle unpacking failed. Reason: DeadlineExceeded, and Message: Job was active longer than specified deadline"}
	missing := observed(olm.SubscriptionCondition{Type: TypeInstallPlanMissing,
		Reason: "ReferencedInstallPlanNotFound"})
	for _, s := range []scenario{
		{
			name: "R-ST-16 a plan awaits approval", given: []given{upgrading(waiting, "install-b"), pending},
			want: map[string]string{TypeInstallPlanPending: "True RequiresApproval", TypeInstallPlanFailed: absent,
				TypeInstallPlanMissing: absent},
			says: map[string]string{TypeInstallPlanPending: "the InstallPlan shop/install-b awaits approval"},
		},
		{
			name: "R-ST-16 the plan is approved",
			given: []given{upgrading(approved(plan("install-b", olm.PhaseRequiresApproval, "etcd.v1.3.0")),
				"install-b"), pending},
			want: map[string]string{TypeInstallPlanPending: absent},
		},
		{
			name:  "R-ST-16 the plan is in a later phase",
			given: []given{upgrading(plan("install-b", olm.PhaseInstalling, "etcd.v1.3.0"), "install-b"), pending},
			want:  map[string]string{TypeInstallPlanPending: absent},
		},
		{
			name:  "R-ST-16 the pending plan is not the one that is referred to",
			given: []given{upgrading(waiting, "install-a"), pending},
			want:  map[string]string{TypeInstallPlanPending: absent},
		},
		{
			name: "a plan without a phase", given: []given{upgrading(plan("install-b", "", "etcd.v1.3.0"), "install-b"),
				observed(olm.SubscriptionCondition{Type: TypeInstallPlanPending, Reason: reasonNotYetReconciled})},
			want: map[string]string{TypeInstallPlanPending: "True InstallPlanNotYetReconciled"},
			says: map[string]string{TypeInstallPlanPending: "the InstallPlan shop/install-b is in phase none"},
		},
		{
			name: "R-ST-16 a failed plan has OLM's error",
			given: []given{upgrading(failedWith("error creating csv\n: \u202etoo long"), "install-b"),
				observed(olm.SubscriptionCondition{Type: TypeInstallPlanFailed, Reason: "InstallComponentFailed",
					Message: "error creating csv\n: \u202etoo long"})},
			want: map[string]string{TypeInstallPlanFailed: "True InstallComponentFailed",
				TypeInstallPlan: "False InstallPlanFailed"},
			says: map[string]string{
				TypeInstallPlanFailed: `error creating csv : \u202etoo long`,
				TypeInstallPlan:       `the InstallPlan shop/install-b has failed: error creating csv : \u202etoo long`,
			},
		},
		{
			name: "R-ST-16 the plan that failed was replaced", given: []given{upgrading(waiting, "install-b"),
				observed(olm.SubscriptionCondition{Type: TypeInstallPlanFailed, Reason: "InstallComponentFailed"})},
			want: map[string]string{TypeInstallPlanFailed: absent},
		},
		{
			name: "R-ST-16 the plan is missing", given: []given{upgrading(waiting, "install-z"), missing},
			want: map[string]string{TypeInstallPlanMissing: "True ReferencedInstallPlanNotFound"},
			says: map[string]string{TypeInstallPlanMissing: "the InstallPlan shop/install-z, which the Subscription shop/etcd refers to, does not exist"},
		},
		{
			name: "R-ST-16 the plan is not missing any more", given: []given{upgrading(waiting, "install-b"), missing},
			want: map[string]string{TypeInstallPlanMissing: absent},
		},
		{
			name: "no plan is referred to", given: []given{upgrading(waiting, ""), missing},
			want: map[string]string{TypeInstallPlanMissing: absent},
		},
		{
			name: "R-ST-16 a bundle is being unpacked", given: []given{running, observed(unpacking)},
			want: map[string]string{TypeBundleUnpacking: "True UnpackingInProgress", TypeBundleUnpackFailed: absent},
		},
		{
			name:  "R-ST-16 OLM has no bundle left to unpack",
			given: []given{running, observed(unpacking, unpackFailed)},
			want:  map[string]string{TypeBundleUnpacking: absent, TypeBundleUnpackFailed: "True BundleUnpackFailed"},
			says:  map[string]string{TypeBundleUnpackFailed: unpackFailed.Message},
		},
		{
			name: "R-ST-16 what failed was written after all",
			given: []given{upgrading(waiting, "install-b"), pendingUpgrade, observed(unpacking,
				olm.SubscriptionCondition{Type: TypeBundleUnpackFailed, Reason: "EnsureInstallPlanFailed",
					Message: "error ensuring InstallPlan: no endpoints"})},
			want: map[string]string{TypeBundleUnpacking: absent, TypeBundleUnpackFailed: absent},
		},
		{
			name: "the pending plan was deleted", given: []given{upgrading(waiting, "install-z"), pendingUpgrade,
				observed(unpackFailed)},
			want: map[string]string{TypeBundleUnpackFailed: "True BundleUnpackFailed"},
		},
		{
			name:  "the next upgrade does not unpack",
			given: []given{upgrading(waiting, "install-b"), atLatest, observed(unpackFailed)},
			want:  map[string]string{TypeBundleUnpackFailed: "True BundleUnpackFailed"},
		},
		{
			name: "R-ST-16 the resolver's text is quoted",
			given: []given{enforced, ready, subscription("etcd", failing(reasonUnsatisfiable,
				"constraints not satisfiable: subscription etcd exists, no operators found in package etcd"))},
			want: map[string]string{TypeResolutionFailed: "True ConstraintsNotSatisfiable"},
			says: map[string]string{TypeResolutionFailed: "constraints not satisfiable: subscription etcd exists, no operators found in package etcd"},
		},
		{
			name: "R-ST-16 the resolver's text in another order",
			given: []given{enforced, ready, subscription("etcd", failing(reasonUnsatisfiable,
				"constraints not satisfiable: subscription etcd exists, no operators found in package etcd")),
				func(in *fixture) {
					in.Policy.Status.Conditions = []metav1.Condition{{Type: TypeResolutionFailed, Status: "True",
						Message: "constraints not satisfiable: no operators found in package etcd, subscription etcd exists"}}
				}},
			says: map[string]string{TypeResolutionFailed: "constraints not satisfiable: no operators found in package etcd, subscription etcd exists"},
		},
		{
			name: "R-ST-14 another Subscription does not resolve", given: []given{enforced, ready,
				subscription("etcd", failing(reasonUnsatisfiable,
					"constraints not satisfiable: subscription vault exists"))},
			want: map[string]string{TypeResolutionFailed: absent},
		},
		{
			name:  "R-ST-6 a reason that no condition may have",
			given: []given{enforced, ready, subscription("etcd", failing("not a reason!", "größe"))},
			want:  map[string]string{TypeResolutionFailed: "True ResolutionFailed"},
			says:  map[string]string{TypeResolutionFailed: "größe"},
		},
		{
			name: "conditions that are not True", given: []given{running, observed(unpacking),
				func(in *fixture) { in.Subscriptions[0].Status.Conditions[0].Status = "False" }},
			want: map[string]string{TypeBundleUnpacking: absent},
		},
		{
			name: "a condition twice", given: []given{running, observed(unpackFailed, unpackFailed)},
			want: map[string]string{TypeBundleUnpackFailed: "True BundleUnpackFailed"},
		},
		{
			name: "unknown types, and the one that has its own condition",
			given: []given{running, catalogState("READY"),
				observed(olm.SubscriptionCondition{Type: TypeCatalogSourcesUnhealthy,
					Reason: "UnhealthyCatalogSourceFound"}, olm.SubscriptionCondition{Type: "Compliant"})},
			want: map[string]string{TypeCatalogSourcesUnhealthy: "False CatalogSourcesFound", TypeCompliant: absent},
		},
		{
			name: "mayhave", given: []given{spec(
				func(s *policyv1beta2.OperatorPolicySpec) { s.ComplianceType = policyv1beta2.MayHave }),
				upgrading(waiting, "install-b"), pending},
			want: map[string]string{TypeInstallPlanPending: "True RequiresApproval"},
		},
		{
			name: "mustnothave", given: []given{spec(
				func(s *policyv1beta2.OperatorPolicySpec) { s.ComplianceType = policyv1beta2.MustNotHave }),
				upgrading(waiting, "install-b"), pending},
			want: map[string]string{TypeInstallPlanPending: absent},
		},
	} {
		s.run(t)
	}
}

// Repeated conditions have OLM's time and do not count.
func TestSubscriptionConditionsInform(t *testing.T) {
	since := evaluatedAt.Add(-time.Hour)
	in := input(running, observed(olm.SubscriptionCondition{Type: TypeBundleUnpackFailed, Reason: "BundleUnpackFailed",
		Message: "no image", LastTransitionTime: since.Format(time.RFC3339)}))
	status, event := Finish(in, Evaluate(in), 10)
	if status.Compliant != policyv1beta2.Compliant || strings.Contains(event.Message, "no image") {
		t.Error(event.Message)
	}
	c := meta.FindStatusCondition(status.Conditions, TypeBundleUnpackFailed)
	if c == nil || !c.LastTransitionTime.Time.Equal(since) || c.Message != "no image" {
		t.Errorf("condition is %+v", c)
	}

	in.Policy.Status, in.Namespace.Subscriptions()[0].Status.Conditions = status, nil
	status, event = Finish(in, Evaluate(in), 10)
	if meta.FindStatusCondition(status.Conditions, TypeBundleUnpackFailed) != nil || event != nil {
		t.Errorf("conditions are %v, event %v", status.Conditions, event)
	}
}

// A text of the resolver that is too long for a condition is the same whatever its order.
func TestLongResolverText(t *testing.T) {
	e := &evaluation{Input: input()}
	message := func(parts ...string) string {
		return e.resolverText("constraints not satisfiable: " +
			strings.Join(slices.Repeat(parts, resolverLength/10), ", "))
	}
	one, other := message("subscription etcd exists", "package etcd"),
		message("package etcd", "subscription etcd exists")
	if one != other || len(one) > resolverLength {
		t.Errorf("%d bytes, and %d bytes: want the same text", len(one), len(other))
	}
}
