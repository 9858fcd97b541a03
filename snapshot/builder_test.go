package snapshot

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/facts"
	"github.com/opgate/opgate/rules/verdict"
)

// TestConstraintsCountEverywhere covers a namespace of which nothing is known yet.
func TestConstraintsCountEverywhere(t *testing.T) {
	if snapshotOf(encode(Constraints, certifiedOnly(1, ""))).Namespace("nowhere").Constraints().Empty() {
		t.Error("no Constraint counts there")
	}
	const onCatalogs = `{"metadata":{"name":"images"},"spec":{"constraints":` +
		`"[{\"type\":\"olm.constraint\",\"value\":{\"on\":\"catalogSource\",\"rule\":\"source.image != ''\"}}]"}}`
	var b Builder
	if len(b.Put(time.Time{}, read(Constraints, onCatalogs)).Namespace("nowhere").Constraints().Definitions()) == 0 {
		t.Error("no Constraint on CatalogSources counts there")
	}
}

// TestSetConstraints checks that Constraints are prepared again when an input of judging changes, and only then: they
// hold the cached results.
func TestSetConstraints(t *testing.T) {
	cluster := facts.Cluster{Version: "1.36.3"}
	var b Builder
	var before *Object
	last := b.Put(time.Time{}, read(Namespaces, `{"metadata":{"name":"shop"}}`))
	for _, step := range []struct {
		name    string
		stored  *constraintv1.Constraint
		cluster facts.Cluster
		want    bool
	}{
		{name: "none, at first", cluster: cluster, want: true},
		{name: "the first", stored: certifiedOnly(1, ""), cluster: cluster, want: true},
		{name: "its status", stored: certifiedOnly(1, "2"), cluster: cluster, want: false},
		{name: "suspended, which makes no generation", stored: suspended(certifiedOnly(1, "3")), cluster: cluster,
			want: true},
		{name: "not suspended any more", stored: certifiedOnly(1, "4"), cluster: cluster, want: true},
		{name: "its spec", stored: certifiedOnly(2, "5"), cluster: cluster, want: true},
		{name: "another Kubernetes", stored: certifiedOnly(2, "5"), cluster: facts.Cluster{Version: "1.37.0"},
			want: true},
		{name: "another OpenShift", stored: certifiedOnly(2, "5"),
			cluster: facts.Cluster{Version: "1.37.0", OpenShift: "4.19.3"}, want: true},
		{name: "gone", cluster: facts.Cluster{Version: "1.37.0", OpenShift: "4.19.3"}, want: true},
	} {
		events := []event{{cluster: &step.cluster}}
		var now *Object
		objects := 0
		if step.stored != nil {
			now, objects = encode(Constraints, step.stored), 1
		}
		if before != nil || now != nil {
			events = append(events, event{old: before, now: now})
		}
		next, change := b.build(time.Time{}, events)
		if got := next.constraints != last.constraints; got != step.want ||
			slices.Contains(change.Namespaces, "shop") != step.want {
			t.Errorf("%s: made ready anew is %v, changed are %q, want %v", step.name, got, change.Namespaces, step.want)
		}
		if next.Namespace("shop").Constraints() != next.constraints {
			t.Errorf("%s: a namespace has other Constraints", step.name)
		}
		if len(next.ConstraintObjects()) != objects || len(next.Constraints().Definitions()) != objects {
			t.Errorf("%s: %d objects and %d definitions, want %d", step.name, len(next.ConstraintObjects()),
				len(next.Constraints().Definitions()), objects)
		}
		before, last = now, next
	}
}

func certifiedOnly(generation int64, resourceVersion string) *constraintv1.Constraint {
	c := &constraintv1.Constraint{ObjectMeta: metav1.ObjectMeta{Name: "certified", UID: "1", Generation: generation,
		ResourceVersion: resourceVersion}}
	c.Spec.Constraints = `[{"type":"olm.constraint","value":{"rule":"properties.exists(p, p.type == 'certified')"}}]`
	return c
}

func suspended(c *constraintv1.Constraint) *constraintv1.Constraint {
	c.Annotations = map[string]string{metakey.Pending: "policies/app"}
	return c
}

func policyIn(namespace, version string, generation int64) *Object {
	op := &policyv1beta2.OperatorPolicy{ObjectMeta: metav1.ObjectMeta{Name: "etcd", Namespace: "policies", UID: "1",
		Generation: generation, ResourceVersion: version}}
	op.Spec.ComplianceType, op.Spec.RemediationAction = policyv1beta2.MustHave, policyv1beta2.Enforce
	op.Spec.Subscription.Name, op.Spec.Subscription.Namespace = "etcd", namespace
	return encode(OperatorPolicies, op)
}

// TestCompletions: a completion counts for the state of the policy that it was made for, in the namespace that it
// names, and a policy is in one namespace only.
func TestCompletions(t *testing.T) {
	b := Builder{Needed: func(op *policyv1beta2.OperatorPolicy) bool { return op.Spec.Subscription.Namespace == "" }}
	key := types.NamespacedName{Namespace: "policies", Name: "etcd"}
	completion := func(generation int64, namespace string, problems ...string) *Completion {
		op := policyIn(namespace, "1", generation).value.(*storedPolicy).object
		return &Completion{Policy: op, Problems: problems}
	}
	first, second, third := policyIn("", "1", 1), policyIn("", "2", 2), policyIn("shop", "3", 3)
	for _, step := range []struct {
		name    string
		event   event
		want    string // namespace
		changed []string
	}{
		{name: "nothing is found yet", event: event{now: first}, want: "", changed: []string{""}},
		{name: "found", event: event{key: key, completed: completion(1, "shop")}, want: "shop",
			changed: []string{"", "shop"}},
		{name: "found again, elsewhere", event: event{key: key, completed: completion(1, "bank")}, want: "bank",
			changed: []string{"bank", "shop"}},
		{name: "it changed", event: event{old: first, now: second}, want: "", changed: []string{"", "bank"}},
		{name: "found for its last state", event: event{key: key, completed: completion(1, "shop")}, want: "",
			changed: []string{""}},
		{name: "found for its present state", event: event{key: key, completed: completion(2, "shop")}, want: "shop",
			changed: []string{"", "shop"}},
		{name: "needed no more", event: event{old: second, now: third}, want: "shop", changed: []string{"shop"}},
		{name: "found too late", event: event{key: key, completed: completion(2, "bank")}, want: "shop"},
		{name: "gone", event: event{old: third}, want: "nowhere", changed: []string{"shop"}},
		{name: "found for what is gone", event: event{key: key, completed: completion(3, "bank")}, want: "nowhere"},
	} {
		next, change := b.build(time.Time{}, []event{step.event})
		if !slices.Equal(change.Namespaces, step.changed) {
			t.Errorf("%s: changed are %q, want %q", step.name, change.Namespaces, step.changed)
		}
		for _, namespace := range []string{"", "shop", "bank"} {
			if got := len(next.Namespace(namespace).Policies()); (got == 1) != (namespace == step.want) {
				t.Errorf("%s: %d policies in %q, it should be in %q", step.name, got, namespace, step.want)
			}
		}
	}
}

// TestChanges: a change names what it affects, and nothing else.
func TestChanges(t *testing.T) {
	var b Builder
	sub := func(version string) *Object {
		return read(Subscriptions, `{"metadata":{"name":"etcd","namespace":"shop","uid":"1","resourceVersion":"`+
			version+`"},"spec":{"name":"etcd"}}`)
	}
	deployment := func(version, available string) *Object {
		return read(Deployments, `{"metadata":{"name":"etcd","namespace":"shop","uid":"2","resourceVersion":"`+version+
			`"},"status":{"availableReplicas":`+available+`}}`)
	}
	catalog := func(version, state string) *Object {
		return read(CatalogSources, `{"metadata":{"name":"hub","namespace":"olm","uid":"3","resourceVersion":"`+version+
			`"},"status":{"connectionState":{"lastObservedState":"`+state+`"}}}`)
	}
	for _, step := range []struct {
		name       string
		old, now   *Object
		namespaces []string
		workloads  []string
		objects    int
	}{
		{name: "a Subscription", now: sub("1"), namespaces: []string{"shop"}},
		{name: "a new version of it", old: sub("1"), now: sub("2"), namespaces: []string{"shop"}},
		{name: "a Deployment", now: deployment("1", "0"), workloads: []string{"shop"}},
		{name: "fields of it that are not kept", old: deployment("1", "0"), now: deployment("3", "0")},
		{name: "fields of it that are kept", old: deployment("3", "0"), now: deployment("4", "1"),
			workloads: []string{"shop"}},
		{name: "a catalog", now: catalog("1", "CONNECTING"), objects: 1},
		{name: "a catalog that was polled", old: catalog("1", "CONNECTING"), now: catalog("5", "CONNECTING")},
		{name: "a catalog that is ready", old: catalog("5", "CONNECTING"), now: catalog("6", "READY"), objects: 1},
		{name: "a Deployment that is gone", old: deployment("4", "1"), workloads: []string{"shop"}},
	} {
		last := b.last
		next, change := b.build(time.Time{}, []event{{old: step.old, now: step.now}})
		if !slices.Equal(change.Namespaces, step.namespaces) || !slices.Equal(change.Workloads, step.workloads) ||
			len(change.Objects) != step.objects {
			t.Errorf("%s: changed are %q and %d objects, want %q and %d", step.name, change.Namespaces,
				len(change.Objects), step.namespaces, step.objects)
		}
		if step.now != nil {
			if got := next.Object(step.now.kind, step.now.concerns, step.now.Key()); got != step.now {
				t.Errorf("%s: the snapshot has %v", step.name, got)
			}
		} else if next.Object(step.old.kind, step.old.concerns, step.old.Key()) != nil {
			t.Errorf("%s: the snapshot still has it", step.name)
		}
		if last != nil && len(last.Objects(Deployments, InNamespace("shop"))) != last.seen[Deployments.index].Objects {
			t.Errorf("%s: the last snapshot has changed", step.name)
		}
	}
}

// TestG5UnreadablePolicyHolds: a stored policy that does not decode holds what it governs.
func TestG5UnreadablePolicyHolds(t *testing.T) {
	s := snapshotOf(read(OperatorPolicies,
		`{"metadata":{"name":"etcd","namespace":"policies"},"spec":{"versions":7,"subscription":{"name":"etcd","namespace":"shop"}}}`))
	policies := s.Namespace("shop").Policies()
	if len(policies) != 1 || !policies[0].Enforced {
		t.Fatalf("%d policies, want the one that does not decode", len(policies))
	}
	v := rules.JudgeSubscription(rules.SubscriptionInput{Namespace: s.Namespace("shop"), Mode: rules.DenyApproval,
		New: &olm.Subscription{Metadata: olm.ObjectMeta{Name: "etcd", Namespace: "shop"},
			Spec: olm.SubscriptionSpec{Package: "etcd"}}})
	if v.Decision == verdict.Allow {
		t.Error("it is allowed")
	}
}

// TestO15PoliciesSuspend checks that the Policies of a snapshot suspend what their templates name, whatever its
// annotations are.
func TestO15PoliciesSuspend(t *testing.T) {
	waits := func(version, details string) *Object {
		return read(Policies, `{"apiVersion":"policy.open-cluster-management.io/v1","kind":"Policy",
			"metadata":{"namespace":"policies","name":"app","uid":"2","resourceVersion":"`+version+`","generation":1},
			"spec":{"dependencies":[{"kind":"Policy","name":"db","compliance":"Compliant"}],"policy-templates":[
				{"objectDefinition":{"apiVersion":"policy.open-cluster-management.io/v1beta2","kind":"OperatorPolicy","metadata":{"name":"etcd"}}},
				{"objectDefinition":{"apiVersion":"operators.coreos.com/v1","kind":"Constraint","metadata":{"name":"certified"}}}]},
			"status":{"details":[`+details+`]}}`)
	}
	first := waits("3", "")
	met := first.Policy().Read.Templates[0].Met
	of := func(name, state string) string {
		return `{"templateMeta":{"name":"` + name + `"},"dependencies":"` + state + `"}`
	}
	b := Builder{}
	b.build(time.Time{}, []event{{now: policyIn("shop", "1", 1)}, {now: encode(Constraints, certifiedOnly(1, "2"))}})
	last := first
	for _, step := range []struct {
		name               string
		now                *Object
		policy, constraint string
		changed            string
	}{
		{name: "never evaluated", now: first, policy: "policies/app", constraint: "policies/app", changed: "shop"},
		{name: "one is met", now: waits("4", of("etcd", met)), constraint: "policies/app", changed: "shop"},
		{name: "written for another reason", now: waits("5", of("etcd", met)), constraint: "policies/app"},
		{name: "both are met", now: waits("6", of("etcd", met)+","+of("certified", met)), changed: "shop"},
		{name: "lost", now: waits("7", of("etcd", "Unsatisfied")+","+of("certified", met)), policy: "policies/app",
			changed: "shop"},
		{name: "deleted", changed: "shop"},
	} {
		e := event{old: last, now: step.now}
		if step.name == "never evaluated" {
			e.old = nil
		}
		next, change := b.build(time.Time{}, []event{e})
		last = step.now
		if got := next.Namespace("shop").Policies(); len(got) != 1 || got[0].Pending != step.policy {
			t.Errorf("%s: the policy is suspended by %q, want %q", step.name, got[0].Pending, step.policy)
		}
		if got := next.Constraints().Definitions()[0].Pending; got != step.constraint {
			t.Errorf("%s: the Constraint is suspended by %q, want %q", step.name, got, step.constraint)
		}
		if got := slices.Contains(change.Namespaces, "shop"); got != (step.changed != "") {
			t.Errorf("%s: changed are %q", step.name, change.Namespaces)
		}
	}
}
