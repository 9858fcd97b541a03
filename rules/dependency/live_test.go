package dependency

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	policyv1 "github.com/opgate/opgate/api/policy/v1"
)

func TestLiveOf(t *testing.T) {
	p := &Policy{Namespace: "shop", Name: "app", UID: "uid-app"}
	const labels = "labels: {policy.open-cluster-management.io/policy: app}"
	owner := func(kind, name, uid string, controller string) string {
		return "ownerReferences: [{apiVersion: apps/v1, kind: Other, name: x, uid: y}, {apiVersion: policy.open-cluster-management.io/v1, kind: " + kind + ", name: " + name + ", uid: " + uid + ", controller: " + controller + "}]"
	}
	for _, c := range []struct {
		name, meta string
		ours       bool
		owner      string
	}{
		{name: "by its controller", meta: "namespace: shop, " + owner("Policy", "app", "uid-app", "true"), ours: true},
		{name: "by its label, without the controller", meta: "namespace: shop, " + labels, ours: true},
		{name: "by its controller, without the label",
			meta: "namespace: shop, labels: {a: b}, " + owner("Policy", "app", "uid-app", "true"), ours: true},
		{name: "left by an earlier Policy of the name", meta: "namespace: shop, " + labels + ", " +
			owner("Policy", "app", "uid-old", "true"), ours: true},
		{name: "made by hand", meta: "namespace: shop"},
		{name: "of another Policy", meta: "namespace: shop, labels: {policy.open-cluster-management.io/policy: db}, " +
			owner("Policy", "db", "uid-db", "true"), owner: "Policy shop/db"},
		{name: "of another Policy by its label",
			meta: "namespace: shop, labels: {policy.open-cluster-management.io/policy: db}", owner: "Policy shop/db"},
		{name: "of something else that has copied the label", meta: "namespace: shop, " + labels + ", " +
			owner("Widget", "app", "uid-w", "true"), owner: "Widget shop/app"},
		{name: "an owner that does not control counts for nothing", meta: "namespace: shop, " +
			owner("Policy", "app", "uid-app", "false")},
		{name: "of a Policy of the same name elsewhere", meta: "namespace: other, " + labels, owner: "Policy other/app"},
		{name: "a label cannot move what has a namespace",
			meta: "namespace: other, labels: {policy.open-cluster-management.io/policy: app, policy.open-cluster-management.io/cluster-namespace: shop}", owner: "Policy other/app"},
		{name: "without a namespace, by both labels",
			meta: "labels: {policy.open-cluster-management.io/policy: app, policy.open-cluster-management.io/cluster-namespace: shop}", ours: true},
		{name: "without a namespace, of another",
			meta: "labels: {policy.open-cluster-management.io/policy: app, policy.open-cluster-management.io/cluster-namespace: infra}", owner: "Policy infra/app"},
		{name: "without a namespace, by one label", meta: labels},
	} {
		t.Run(c.name, func(t *testing.T) {
			live := LiveOf(object(t, "metadata: {name: x, "+c.meta+"}"), p)
			got := ""
			if live.Owner != nil {
				got = live.Owner.String()
			}
			if live.Ours != c.ours || got != c.owner || live.Suspended || live.Deleting {
				t.Errorf("ours %t, owner %q", live.Ours, got)
			}
		})
	}
	if LiveOf(nil, p) != nil {
		t.Error("nothing is there")
	}
	live := LiveOf(object(t,
		`metadata: {annotations: {opgate.io/pending: ""}, deletionTimestamp: "2026-11-21T12:00:00Z"}`), p)
	if !live.Suspended || !live.Deleting {
		t.Errorf("%+v", live)
	}
	empty := &Policy{Namespace: "shop", Name: "app"}
	if live := LiveOf(object(t, "metadata: {namespace: shop, "+owner("Policy", "other", `""`, "true")+"}"),
		empty); live.Ours {
		t.Error("an owner without a UID is the Policy")
	}
}

func TestOverride(t *testing.T) {
	for _, c := range []struct {
		name, object, want string
		action             policyv1.RemediationAction
		err                string
	}{
		{name: "namespace and action", action: policyv1.Enforce,
			object: "{kind: ConfigurationPolicy, apiVersion: policy.open-cluster-management.io/v1, metadata: {namespace: attacked}, spec: {remediationAction: inform, x: 1}}",
			want:   "{kind: ConfigurationPolicy, apiVersion: policy.open-cluster-management.io/v1, metadata: {namespace: shop}, spec: {remediationAction: enforce, x: 1}}"},
		{name: "no action above", object: "{metadata: {}, spec: {remediationAction: inform}}",
			want: "{metadata: {namespace: shop}, spec: {remediationAction: inform}}"},
		{name: "no action below", action: policyv1.Inform, object: "{metadata: {}, spec: {}}",
			want: "{metadata: {namespace: shop}, spec: {remediationAction: inform}}"},
		{name: "only informs", action: policyv1.Enforce,
			object: "{metadata: {}, spec: {remediationAction: InformOnly}}",
			want:   "{metadata: {namespace: shop}, spec: {remediationAction: inform}}"},
		{name: "only informs, in other letters", action: policyv1.Enforce,
			object: "{metadata: {}, spec: {remediationAction: informonly}}",
			want:   "{metadata: {namespace: shop}, spec: {remediationAction: inform}}"},
		{name: "no spec", action: policyv1.Enforce, object: "{metadata: {}}", want: "{metadata: {namespace: shop}}"},
		{name: "a Constraint has neither", action: policyv1.Enforce,
			object: "{apiVersion: operators.coreos.com/v1, kind: Constraint, metadata: {namespace: x}, spec: {}}",
			want:   "{apiVersion: operators.coreos.com/v1, kind: Constraint, metadata: {}, spec: {}}"},
		{name: "nor has Gatekeeper", action: policyv1.Enforce,
			object: "{apiVersion: constraints.gatekeeper.sh/v1beta1, kind: K, metadata: {}, spec: {enforcementAction: deny}}",
			want:   "{apiVersion: constraints.gatekeeper.sh/v1beta1, kind: K, metadata: {}, spec: {enforcementAction: deny}}"},
		{name: "no metadata", object: "{metadata: x}", want: "{metadata: x}", err: "objectDefinition has no metadata"},
	} {
		t.Run(c.name, func(t *testing.T) {
			policy := &policyv1.Policy{}
			policy.Namespace, policy.Spec.RemediationAction = "shop", c.action
			got := object(t, c.object)
			err := Override(got, policy)
			if diff := cmp.Diff(object(t, c.want), got); diff != "" {
				t.Error(diff)
			}
			if (err == nil) != (c.err == "") || err != nil && err.Error() != c.err {
				t.Errorf("%v, want %q", err, c.err)
			}
		})
	}
}
