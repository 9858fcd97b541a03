package compliance

import (
	"encoding/json"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
)

// other adds a policy for another package, which is older, to the namespace.
func other(group *policyv1beta2.OperatorGroupTemplate) given {
	return func(in *fixture) {
		op := &policyv1beta2.OperatorPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "policies", Name: "grafana", UID: "uid-other",
			CreationTimestamp: metav1.NewTime(evaluatedAt.Add(-time.Hour))}}
		op.Spec = policyv1beta2.OperatorPolicySpec{RemediationAction: policyv1beta2.Enforce,
			ComplianceType: policyv1beta2.MustHave, UpgradeApproval: policyv1beta2.UpgradeApprovalAutomatic,
			Subscription:  policyv1beta2.SubscriptionTemplate{Name: "grafana", Namespace: "shop"},
			OperatorGroup: group}
		in.contents.Policies = append(in.contents.Policies, rules.NewOperatorPolicy(op))
	}
}

// madeBy marks a group as created by a policy that has set fields of it.
func madeBy(uid types.UID, fields ...string) func(*olm.OperatorGroup) {
	return func(g *olm.OperatorGroup) {
		by := &policyv1beta2.OperatorPolicy{ObjectMeta: metav1.ObjectMeta{UID: uid}}
		g.Metadata.Annotations.CreatedBy = rules.CreatedMark([]byte("key"), by, kindOperatorGroup, &g.Metadata, fields)
	}
}

// TestEvaluateGroupOwner: a policy writes nothing to an OperatorGroup of another one, and the one that created it reports
// what has become of it.
func TestEvaluateGroupOwner(t *testing.T) {
	const belongs = `the OperatorGroup shop/scoped does not match the policy: spec.targetNamespaces is not set, want ["b"]; ` +
		"it belongs to OperatorPolicy policies/grafana, which created it, so this policy does not write it: " +
		"leave targetNamespaces to that policy, or install the operator in another namespace"
	const changed = "the OperatorGroup matches what is required by the policy; the policy created it for other namespaces: another " +
		"client has changed it, and it is for other-ns now; name the target namespaces in spec.operatorGroup to have them enforced"
	for _, s := range []scenario{
		{
			name: "D1 the group of another policy", given: []given{enforced, other(nil), policyGroup(targeting(`["b"]`)),
				group("scoped", nil, madeBy("uid-other"))},
			want: map[string]string{TypeOperatorGroup: "False OperatorGroupMismatch", TypeSubscription: "False SubscriptionMissing"},
			says: map[string]string{TypeOperatorGroup: belongs},
		},
		{
			name: "D1 informing", given: []given{other(nil), policyGroup(targeting(`["b"]`)),
				group("scoped", nil, madeBy("uid-other"))},
			says: map[string]string{TypeOperatorGroup: belongs},
		},
		{
			name: "D1 the group of a policy that is gone", given: []given{enforced, present, policyGroup(targeting(`["b"]`)),
				group("scoped", nil, madeBy("uid-other"))},
			actions: []string{"update OperatorGroup shop/scoped"},
		},
		{
			name: "a mark that a user has written counts for nothing", given: []given{enforced, present, other(nil),
				policyGroup(targeting(`["b"]`)), group("scoped", nil, func(g *olm.OperatorGroup) {
					g.Metadata.Annotations.CreatedBy = "uid-other"
				})},
			actions: []string{"update OperatorGroup shop/scoped"},
		},
		{
			name: "a group of people that an older policy names", given: []given{enforced, present,
				other(&policyv1beta2.OperatorGroupTemplate{Name: "scoped", TargetNamespaces: raw(`["a"]`)}),
				policyGroup(targeting(`["b"]`)), group("scoped", targets("a"))},
			want: map[string]string{TypeOperatorGroup: "False OperatorGroupMismatch"},
		},
		{
			name: "a group that an older policy will create", given: []given{enforced, present,
				other(&policyv1beta2.OperatorGroupTemplate{Name: "scoped", TargetNamespaces: raw(`["a"]`)}),
				policyGroup(targeting(`["b"]`))},
			want: map[string]string{TypeOperatorGroup: "False OperatorGroupMissing"},
		},
		{
			name: "as the other policy has it", given: []given{enforced, present, other(nil), policyGroup(targeting(`["a"]`)),
				group("scoped", targets("a"), madeBy("uid-other", "targetNamespaces"))},
			want: map[string]string{TypeOperatorGroup: "True OperatorGroupMatches"},
		},
		{
			name: "D1 the first one's group was changed", given: []given{enforced, present,
				group("shop-x7", targets("other-ns"), generated, madeBy("uid-policy"))},
			want: map[string]string{TypeOperatorGroup: "True OperatorGroupMatches"},
			says: map[string]string{TypeOperatorGroup: changed},
		},
		{
			name: "its named group was changed", given: []given{enforced, present, policyGroup(),
				group("scoped", targets("other-ns"), madeBy("uid-policy"))},
			says: map[string]string{TypeOperatorGroup: changed},
		},
		{
			name: "its group is for its own namespace, as it made it", given: []given{enforced, present, channelModes(ownNamespace),
				group("shop-x7", targets("shop"), generated, madeBy("uid-policy", "targetNamespaces"))},
			says: map[string]string{TypeOperatorGroup: "the OperatorGroup matches what is required by the policy"},
		},
		{
			name: "its group is as the deleted one was", given: []given{enforced, present,
				group("shop-x7", targets("a"), generated, madeBy("uid-policy", "targetNamespaces"))},
			says: map[string]string{TypeOperatorGroup: "the OperatorGroup matches what is required by the policy"},
		},
		{
			name: "targets that people have set in their group stay", given: []given{enforced, present, policyGroup(),
				group("scoped", targets("a"))},
			says: map[string]string{TypeOperatorGroup: "the OperatorGroup matches what is required by the policy; it is for a, which stays, " +
				"since the policy names no target namespaces"},
		},
	} {
		s.run(t)
	}
}

// apply returns an object after the actions of one evaluation, and whether there were any.
func apply[T any](t *testing.T, in *Input, kind string, before *T) (after *T, acted bool) {
	t.Helper()
	after = before
	for _, a := range Evaluate(in).Actions {
		if a.Object["kind"] != kind {
			continue
		}
		content := maps.Clone(a.Object)
		metadata := maps.Clone(object(content, "metadata"))
		metadata["uid"], content["metadata"] = "uid-object", metadata
		spec := maps.Clone(object(content, "spec"))
		maps.DeleteFunc(spec, func(_ string, value any) bool { return value == nil }) // as a merge patch does
		content["spec"] = spec
		raw, err := json.Marshal(content)
		if err != nil {
			t.Fatal(err)
		}
		after, acted = new(T), true
		if err := json.Unmarshal(raw, after); err != nil {
			t.Fatal(err)
		}
	}
	return after, acted
}

// transitions calls a function for each two states, the second of which follows the first.
func transitions[T any](states map[string]T, each func(name string, from, to T)) {
	for from := range states {
		for to := range states {
			each(from+" to "+to, states[from], states[to])
		}
	}
}

// TestGroupTransitions: whatever a policy asked for before, the group that it created is afterwards as if it were created
// anew, but for an account, which stays; that of people has what the policy sets, and both ways to name namespaces never.
func TestGroupTransitions(t *testing.T) {
	states := map[string]func(*policyv1beta2.OperatorGroupTemplate){
		"all namespaces": func(*policyv1beta2.OperatorGroupTemplate) {},
		"an empty list":  targeting(`[]`),
		"a list":         targeting(`["a"]`),
		"another list":   targeting(`["b","a"]`),
		"a selector": func(g *policyv1beta2.OperatorGroupTemplate) {
			g.Selector = raw(`{"matchExpressions":[{"key":"foo","operator":"In","values":["bar"]}]}`)
		},
		"another selector": func(g *policyv1beta2.OperatorGroupTemplate) { g.Selector = raw(`{"matchLabels":{"team":"a"}}`) },
		"a target": func(g *policyv1beta2.OperatorGroupTemplate) {
			g.Target = &policyv1beta2.OperatorGroupTarget{Namespaces: raw(`["c"]`)}
		},
		"an account": func(g *policyv1beta2.OperatorGroupTemplate) { g.ServiceAccountName = "installer" },
		"the rest": func(g *policyv1beta2.OperatorGroupTemplate) {
			g.TargetNamespaces, g.UpgradeStrategy, g.StaticProvidedAPIs = raw(`["a"]`), "TechPreviewUnsafeFailForward", raw("true")
		},
	}
	evaluate := func(t *testing.T, change func(*policyv1beta2.OperatorGroupTemplate), g *olm.OperatorGroup) *olm.OperatorGroup {
		t.Helper()
		for range 3 {
			after, acted := apply(t, input(enforced, present, policyGroup(change), func(in *fixture) {
				if g != nil {
					in.OperatorGroups = append(in.OperatorGroups, g)
				}
			}), kindOperatorGroup, g)
			if g = after; !acted {
				return g
			}
		}
		t.Fatal("the group is written again and again")
		return nil
	}
	transitions(states, func(name string, from, to func(*policyv1beta2.OperatorGroupTemplate)) {
		t.Run(name, func(t *testing.T) {
			fresh := evaluate(t, to, nil)
			before := evaluate(t, from, nil)
			want := fresh.Spec.Fields()
			if account := before.Spec.Fields()["serviceAccountName"]; account != nil {
				want["serviceAccountName"] = account
			}
			after := evaluate(t, to, before)
			if diff := cmp.Diff(want, after.Spec.Fields()); diff != "" {
				t.Errorf("its own (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(fresh.Metadata, after.Metadata); diff != "" {
				t.Errorf("metadata (-want +got):\n%s", diff)
			}
			people := *before
			people.Metadata.Annotations.CreatedBy = ""
			kept := evaluate(t, to, &people).Spec.Fields()
			for field, value := range fresh.Spec.Fields() {
				if diff := cmp.Diff(value, kept[field]); diff != "" {
					t.Errorf("%s of people (-want +got):\n%s", field, diff)
				}
			}
			if kept["targetNamespaces"] != nil && kept["selector"] != nil {
				t.Errorf("the group of people has both: %v", kept)
			}
			asPolicy := input(policyGroup(func(g *policyv1beta2.OperatorGroupTemplate) {
				g.TargetNamespaces, g.Selector = written(after.Spec.Fields()["targetNamespaces"]), written(after.Spec.Fields()["selector"])
			}))
			if len(asPolicy.Rules.Invalid) > 0 {
				t.Errorf("a policy that asks for the same is refused: %v", asPolicy.Rules.Invalid)
			}
		})
	})
}

// written returns a value as a policy has it, nil for none.
func written(value any) *apiextensionsv1.JSON {
	if value == nil {
		return nil
	}
	data, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return raw(string(data))
}

// TestSubscriptionTransitions: whatever a policy asked for before, the Subscription that it created is afterwards as if it
// were created anew.
func TestSubscriptionTransitions(t *testing.T) {
	states := map[string]func(*policyv1beta2.SubscriptionTemplate){}
	for _, channel := range []string{"", "stable-1.2", "beta"} {
		for _, start := range []string{"", "etcd.v1.2.0"} {
			for _, config := range []string{"", `{"env":[{"name":"A","value":"b"}]}`, `{"nodeSelector":{"a":"b"}}`} {
				states[fmt.Sprintf("%q %q %q", channel, start, config)] = func(s *policyv1beta2.SubscriptionTemplate) {
					if s.Channel, s.StartingCSV = channel, start; config != "" {
						s.Config = raw(config)
					}
				}
			}
		}
	}
	evaluate := func(t *testing.T, change func(*policyv1beta2.SubscriptionTemplate), s *olm.Subscription) *olm.Subscription {
		t.Helper()
		for range 3 {
			after, acted := apply(t, input(enforced, ready, manifest(), asked(change), func(in *fixture) {
				if s != nil {
					in.Subscriptions = append(in.Subscriptions, s)
				}
			}), kindSubscription, s)
			if s = after; !acted {
				return s
			}
		}
		t.Fatal("the Subscription is written again and again")
		return nil
	}
	transitions(states, func(name string, from, to func(*policyv1beta2.SubscriptionTemplate)) {
		want, got := evaluate(t, to, nil), evaluate(t, to, evaluate(t, from, nil))
		if diff := cmp.Diff(subscriptionContent(want), subscriptionContent(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	})
}
