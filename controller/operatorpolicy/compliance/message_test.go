package compliance

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
)

func TestAggregate(t *testing.T) {
	const all = "good ValidPolicySpec, good OperatorGroupCompliant, good SubscriptionCompliant, good InstallPlanCompliant, good ClusterServiceVersionCompliant, " +
		"good CustomResourceDefinitionCompliant, good DeploymentCompliant, good CatalogSourcesUnhealthy"
	fault := func(message, insteadOf string) string {
		return "NonCompliant; " + message + ", " + strings.Replace(strings.Replace(all, insteadOf+", ", "", 1),
			", "+insteadOf, "", 1)
	}
	type spec = policyv1beta2.OperatorPolicySpec
	strict := func(s *spec) {
		s.ComplianceConfig.DeprecationsPresent,
			s.ComplianceConfig.MinorChannelUpgradeAvailable = policyv1beta2.ConfigNonCompliant,
			policyv1beta2.ConfigNonCompliant
	}
	plain := func(*spec) {}
	for name, c := range map[string]struct {
		edit       func(*spec)
		conditions []Condition
		want       string
	}{
		"all is well": {plain, good(), "Compliant; " + all},
		"one is not": {plain, saying(good(), TypeDeployment, metav1.ConditionFalse, "down"),
			fault("down", "good DeploymentCompliant")},
		"unknown is not well": {plain, saying(good(), TypeInstallPlan, metav1.ConditionUnknown, "?"),
			fault("?", "good InstallPlanCompliant")},
		"an unhealthy catalog is True": {plain, saying(good(), TypeCatalogSourcesUnhealthy, metav1.ConditionTrue,
			"ill"), fault("ill", "good CatalogSourcesUnhealthy")},
		"an unknown catalog fails too": {plain, saying(good(), TypeCatalogSourcesUnhealthy, metav1.ConditionUnknown,
			"?"), fault("?", "good CatalogSourcesUnhealthy")},
		"one that is missing says so": {plain, without(good(), TypeClusterServiceVersion),
			"NonCompliant; " + strings.Replace(all, "good ClusterServiceVersionCompliant, ", "", 1) +
				", ClusterServiceVersionCompliant could not be determined"},
		"a message of several conditions is there once": {plain,
			saying(saying(good(), TypeDeployment, metav1.ConditionTrue, "elsewhere"), TypeSubscription,
				metav1.ConditionTrue, "elsewhere"),
			"Compliant; " + strings.NewReplacer("good SubscriptionCompliant", "elsewhere", "good DeploymentCompliant, ",
				"").Replace(all)},
		"an invalid spec silences the rest": {plain,
			saying(good(), TypeValidPolicySpec, metav1.ConditionFalse, "bad spec"), "NonCompliant; bad spec"},
		"a missing namespace does not": {plain,
			saying(good(), TypeValidPolicySpec, metav1.ConditionFalse, "The Operator Namespace x"),
			"NonCompliant; " + strings.Replace(all, "good ValidPolicySpec", "The Operator Namespace x", 1)},
		"deprecations do not count": {plain, saying(good(), TypeNoDeprecations, metav1.ConditionFalse, "old"),
			"Compliant; " + all},
		"26.4 unless asked to": {strict, saying(good(), TypeNoDeprecations, metav1.ConditionFalse, "old"),
			"NonCompliant; old, " + all},
		"deprecations are told in both": {strict, good(), "Compliant; " + all + ", good NoDeprecations"},
		"deprecations that are not known": {strict, without(good(), TypeNoDeprecations),
			"NonCompliant; " + all + ", NoDeprecations could not be determined"},
		"9.8 a minor channel, where it does": {strict,
			saying(good(), TypeMinorChannelUpgradeAvailable, metav1.ConditionFalse, "newer"),
			"NonCompliant; newer, " + all + ", good NoDeprecations"},
		"a minor channel, where it does not": {plain,
			saying(good(), TypeMinorChannelUpgradeAvailable, metav1.ConditionFalse, "newer"), "Compliant; " + all},
		"mustnothave has neither": {func(s *spec) {
			strict(
				s)
			s.ComplianceType = policyv1beta2.MustNotHave
		}, without(without(good(), TypeNoDeprecations),
			TypeMinorChannelUpgradeAvailable), "Compliant; " + all},
		"nothing was looked at": {plain, nil,
			"NonCompliant; ValidPolicySpec could not be determined, OperatorGroupCompliant could not be determined, SubscriptionCompliant could not be determined, InstallPlanCompliant could not be determined, ClusterServiceVersionCompliant could not be determined, CustomResourceDefinitionCompliant could not be determined, DeploymentCompliant could not be determined, CatalogSourcesUnhealthy could not be determined"},
		"other conditions have no say in it": {plain,
			append(good(), Condition{Type: "Other", Status: metav1.ConditionFalse, Message: "other"}),
			"Compliant; " + all},
		"a related object has no say in it": {plain, func() []Condition {
			f := good()
			f[2].Related = []policyv1beta2.RelatedObject{{Compliant: policyv1beta2.NonCompliant}}
			return f
		}(), "Compliant; " + all},
		"deprecations mean nothing elsewhere": {func(s *spec) { s.ComplianceConfig.DeprecationsPresent = "noncompliant" }, saying(good(), TypeNoDeprecations, metav1.ConditionFalse, "old"), "Compliant; " + all},
	} {
		t.Run(name, func(t *testing.T) {
			in := finishing()
			c.edit(&in.Policy.Spec)
			status, event := Finish(in, Outcome{Conditions: c.conditions}, 10)
			if diff := cmp.Diff(c.want, event.Message); diff != "" {
				t.Error(diff)
			}
			if want, _, _ := strings.Cut(c.want, ";"); string(status.Compliant) != want {
				t.Errorf("%s", status.Compliant)
			}
		})
	}
}

// TestMessageOrder: what is wrong is first, and the most recent change before others (R-ST-4).
func TestMessageOrder(t *testing.T) {
	in := finishing()
	status, _ := Finish(in, Outcome{Conditions: good()}, 10)
	conditions := saying(good(), TypeDeployment, metav1.ConditionFalse, "down")
	in = later(t, in, status, time.Minute)
	status, _ = Finish(in, Outcome{Conditions: conditions}, 10)
	conditions = saying(saying(conditions, TypeSubscription, metav1.ConditionFalse, "lost"), TypeClusterServiceVersion,
		metav1.ConditionFalse, "failed")
	conditions = saying(conditions, TypeInstallPlan, metav1.ConditionTrue, "approved")
	conditions[0].Since = metav1.NewTime(noon.Add(-time.Hour))
	conditions[0].Message = "valid since long"
	_, event := Finish(later(t, in, status, time.Minute), Outcome{Conditions: conditions}, 10)
	want := "NonCompliant; lost, failed, down, approved, good OperatorGroupCompliant, good CustomResourceDefinitionCompliant, good CatalogSourcesUnhealthy, valid since long"
	if diff := cmp.Diff(want, event.Message); diff != "" {
		t.Error(diff)
	}
}

func TestComplianceEvent(t *testing.T) {
	op := finishing().Policy
	at := metav1.NewTime(noon)
	want := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "policies", Name: "default.etcd.18ea0da425f94d15"},
		InvolvedObject: corev1.ObjectReference{APIVersion: "policy.open-cluster-management.io/v1", Kind: "Policy",
			Namespace: "policies", Name: "default.etcd", UID: "uid-owner"},
		Related: &corev1.ObjectReference{APIVersion: "policy.open-cluster-management.io/v1beta2",
			Kind: "OperatorPolicy", Namespace: "policies", Name: "etcd", UID: "uid-policy"},
		Reason:              "policy: policies/etcd",
		Message:             "Compliant; fine",
		Type:                "Normal",
		Action:              "ComplianceStateUpdate",
		Source:              corev1.EventSource{Component: "configuration-policy-controller", Host: "opgate-0"},
		ReportingController: "configuration-policy-controller",
		ReportingInstance:   "opgate-0",
		FirstTimestamp:      at, LastTimestamp: at, Count: 1,
	}
	e := Event{Message: "Compliant; fine", Type: corev1.EventTypeNormal, Time: noon}
	if diff := cmp.Diff(want, ComplianceEvent(op, e, "opgate-0")); diff != "" {
		t.Error(diff)
	}
	op.OwnerReferences = nil
	if got := ComplianceEvent(op, e, "opgate-0"); got != nil {
		t.Errorf("without an owner: %v", got)
	}
}

func TestEventType(t *testing.T) {
	for message, want := range map[string]string{"Compliant; x": "Normal", "NonCompliant; x": "Warning",
		"Compliantly": "Warning", "": "Warning"} {
		if got := eventType(message); got != want {
			t.Errorf("%q is %s", message, got)
		}
	}
}
