package compliance

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
)

// replacing is an upgrade to etcd.v1.3.0, begun four minutes ago, whose Deployment is not up.
func replacing(changes ...func(*Installed)) given {
	return func(in *fixture) {
		running(in)
		in.CSVs[0].Status.Phase, in.CSVs[0].Status.Reason, in.CSVs[0].Metadata.CreationTimestamp = "Replacing",
			"BeingReplaced", "2026-01-01T00:00:00Z"
		begun := func(c *Installed) {
			c.Version, c.Metadata.CreationTimestamp = "1.3.0", evaluatedAt.Add(-4*time.Minute).Format(time.RFC3339)
			c.Status.Phase, c.Status.Reason, c.Status.Message = "Installing", "InstallWaiting", "installing: waiting"
		}
		csv("etcd.v1.3.0", append([]func(*Installed){begun}, changes...)...)(in)
		in.Subscriptions[0].Status.InstalledCSV, in.Subscriptions[0].Status.CurrentCSV = "etcd.v1.3.0", "etcd.v1.3.0"
		deployment("etcd-operator", false)(in)
	}
}

// was adds a condition to the status.
func was(conditionType string, status metav1.ConditionStatus) given {
	return func(in *fixture) {
		in.Policy.Status.Conditions = append(in.Policy.Status.Conditions,
			metav1.Condition{Type: conditionType, Status: status})
	}
}

func TestEvaluateUpgrade(t *testing.T) {
	const tolerated = "; the upgrade from etcd.v1.2.0 is in progress, and this counts from 2026-03-01T12:06:00Z on"
	phase := func(phase string) func(*Installed) { return func(c *Installed) { c.Status.Phase = phase } }
	counts := map[string]string{TypeClusterServiceVersion: "False InstallWaiting",
		TypeDeployment: "False DeploymentsUnavailable"}
	for _, s := range []scenario{
		{
			name: "R-OP-13 what is not up yet does not count",
			given: []given{replacing(), was(TypeClusterServiceVersion, metav1.ConditionTrue),
				was(TypeDeployment, metav1.ConditionTrue)},
			want: map[string]string{TypeClusterServiceVersion: "True InstallWaiting",
				TypeDeployment: "True DeploymentsUnavailable"},
			says: map[string]string{
				TypeClusterServiceVersion: "ClusterServiceVersion (etcd.v1.3.0) - installing: waiting" + tolerated,
				TypeDeployment:            "the operator's Deployments are not all available; without their minimum availability: etcd-operator" + tolerated,
			},
			related: map[string][]string{
				kindClusterServiceVersion: {"etcd.v1.3.0 Compliant InstallWaiting"},
				kindDeployment:            {"etcd-operator Compliant Deployment Unavailable"},
			},
		},
		{
			name:  "the Subscription names the replaced version",
			given: []given{replacing(), func(in *fixture) { in.Subscriptions[0].Status.InstalledCSV = "etcd.v1.2.0" }},
			want:  map[string]string{TypeClusterServiceVersion: "True BeingReplaced"},
		},
		{
			name: "both were created in the same second",
			given: []given{replacing(),
				func(in *fixture) { in.CSVs[0].Metadata.CreationTimestamp = in.CSVs[1].Metadata.CreationTimestamp }},
			says: map[string]string{TypeClusterServiceVersion: "ClusterServiceVersion (etcd.v1.3.0) - installing: waiting" + tolerated},
		},
		{
			name: "OLM resolves while it replaces",
			given: []given{replacing(),
				func(in *fixture) { failing(reasonUnsatisfiable, lostMessage)(in.Subscriptions[0]) }},
			want: map[string]string{TypeSubscription: "True SubscriptionMatches", TypeResolutionFailed: " "},
		},
		{
			name: "OLM cannot resolve for another reason",
			given: []given{replacing(),
				func(in *fixture) { failing(reasonUnsatisfiable, "subscription etcd exists")(in.Subscriptions[0]) }},
			want: map[string]string{TypeSubscription: "False ConstraintsNotSatisfiable"},
		},
		{
			name:  "the new version has failed",
			given: []given{replacing(phase("Failed"))},
			want:  counts,
		},
		{
			name: "OLM parks the new version, since the operator refuses its upgrade",
			given: []given{replacing(
				func(c *Installed) { c.Status.Phase, c.Status.Reason = "Pending", "OperatorConditionNotUpgradeable" })},
			want: map[string]string{TypeClusterServiceVersion: "False OperatorConditionNotUpgradeable",
				TypeDeployment: "False DeploymentsUnavailable"},
		},
		{
			name: "the new version had failed, and OLM tries again",
			given: []given{replacing(), was(TypeClusterServiceVersion, metav1.ConditionFalse),
				was(TypeDeployment, metav1.ConditionFalse)},
			want: counts,
		},
		{
			name: "a Deployment has exceeded its progress deadline",
			given: []given{replacing(),
				func(in *fixture) { in.Deployments["etcd-operator"] = Deployment{Stalled: true} }},
			want: counts,
			says: map[string]string{TypeDeployment: "the operator's Deployments are not all available; without their minimum availability: etcd-operator; " +
				"beyond their progress deadline: etcd-operator"},
		},
		{
			name: "ten minutes have passed",
			given: []given{replacing(
				func(c *Installed) {
					c.Metadata.CreationTimestamp = evaluatedAt.Add(-upgradeTime).Format(
						time.RFC3339)
				})},
			want: counts,
		},
		{
			name: "upgradesProgressing wins",
			given: []given{replacing(),
				config(func(c *policyv1beta2.ComplianceConfig) { c.UpgradesProgressing = policyv1beta2.ConfigNonCompliant })},
			want: counts,
		},
		{
			name:  "a first installation is no upgrade",
			given: []given{replacing(), func(in *fixture) { in.CSVs = in.CSVs[1:] }},
			want:  counts,
		},
		{
			name: "a version that is not allowed counts",
			given: []given{replacing(),
				spec(func(s *policyv1beta2.OperatorPolicySpec) { s.Versions = []string{"etcd.v1.2.0"} })},
			want: map[string]string{TypeClusterServiceVersion: "False UnapprovedVersion"},
		},
		{
			name: "an operator that is installed elsewhere is upgraded",
			given: []given{
				catalogState("READY"),
				copiedFrom("etcd.v1.2.0", origin(func(o *original) {
					o.CSV.Status.Phase, o.CSV.Metadata.CreationTimestamp = "Replacing", "2026-01-01T00:00:00Z"
				})),
				copiedFrom("etcd.v1.3.0", origin(func(o *original) {
					o.CSV.Status.Phase, o.CSV.Metadata.CreationTimestamp = "Pending",
						evaluatedAt.Add(-4*time.Minute).Format(time.RFC3339)
				})),
			},
			want: map[string]string{TypeClusterServiceVersion: "True Copied"},
		},
	} {
		s.run(t)
	}
	if after := Evaluate(input(replacing())).After; after != 6*time.Minute+time.Second {
		t.Errorf("the next evaluation is in %s", after)
	}
	if after := Evaluate(input(running)).After; after != 0 {
		t.Errorf("the next evaluation without an upgrade is in %s", after)
	}
}

// OLM sets the phase of a ClusterServiceVersion whose Deployments are not available.
func TestEvaluateToleratedDeployments(t *testing.T) {
	tolerated := config(func(c *policyv1beta2.ComplianceConfig) { c.DeploymentsUnavailable = policyv1beta2.ConfigCompliant })
	in := func(phase, reason string) given {
		return func(in *fixture) { in.CSVs[0].Status.Phase, in.CSVs[0].Status.Reason = phase, reason }
	}
	down := deployment("etcd-operator", false)
	for _, s := range []scenario{
		{
			name: "OLM waits for them", given: []given{running, tolerated, down, in("Installing", "InstallWaiting")},
			want: map[string]string{TypeClusterServiceVersion: "True InstallWaiting",
				TypeDeployment: "True DeploymentsUnavailable"},
			says: map[string]string{TypeClusterServiceVersion: "ClusterServiceVersion (etcd.v1.2.0) - install strategy completed with no errors" + notImpacted},
		},
		{
			name:  "OLM has given up and tries again",
			given: []given{running, tolerated, down, in("Failed", "InstallCheckFailed")},
			want:  map[string]string{TypeClusterServiceVersion: "True InstallCheckFailed"},
		},
		{
			name: "they count", given: []given{running, down, in("Installing", "InstallWaiting")},
			want: map[string]string{TypeClusterServiceVersion: "False InstallWaiting"},
		},
		{
			name: "OLM waits for something else", given: []given{running, tolerated, down,
				in("Pending", "RequirementsNotMet")},
			want: map[string]string{TypeClusterServiceVersion: "False RequirementsNotMet"},
		},
		{
			name: "they are available", given: []given{running, tolerated, in("Installing", "InstallWaiting")},
			want: map[string]string{TypeClusterServiceVersion: "False InstallWaiting"},
		},
	} {
		s.run(t)
	}
}
