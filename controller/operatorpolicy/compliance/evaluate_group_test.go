package compliance

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/state"
)

func targeting(text string) func(*policyv1beta2.OperatorGroupTemplate) {
	return func(g *policyv1beta2.OperatorGroupTemplate) { g.TargetNamespaces = raw(text) }
}

// createdMark is the mark of the policy on an object that it created.
func createdMark(kind string, o olm.ObjectMeta, fields ...string) string {
	policy := &policyv1beta2.OperatorPolicy{ObjectMeta: metav1.ObjectMeta{UID: "uid-policy"}}
	return rules.CreatedMark([]byte("key"), policy, kind, &o, fields)
}

func targets(names ...string) map[string]any {
	return map[string]any{"targetNamespaces": anySlice(names)}
}

func modes(names ...string) map[string]bool {
	m := map[string]bool{allNamespaces: false, ownNamespace: false, singleNamespace: false, multiNamespace: false}
	for _, name := range names {
		m[name] = true
	}
	return m
}

func csvModes(names ...string) given {
	return func(in *fixture) { in.CSVs[0].Status.InstallModes = modes(names...) }
}

func channelModes(names ...string) given {
	return manifest(func(p *catalog.Package) { p.Channels[0].InstallModes = modes(names...) })
}

// present adds a Subscription, which is not under test here.
func present(in *fixture) { subscription("etcd")(in) }

func TestEvaluateOperatorGroup(t *testing.T) {
	for _, s := range []scenario{
		{
			name: "3.1 none, informing", given: []given{present},
			want:    map[string]string{TypeOperatorGroup: "False OperatorGroupMissing"},
			says:    map[string]string{TypeOperatorGroup: "the required OperatorGroup was not found in namespace shop and will not be created, because the policy is not enforced"},
			related: map[string][]string{kindOperatorGroup: {"- NonCompliant Resource not found but should exist"}},
		},
		{
			name: "3.2 none, enforced", given: []given{enforced, present},
			actions: []string{"create OperatorGroup shop/shop-*"},
			done:    []string{"OperatorGroupCompliant True OperatorGroupCreated"},
		},
		{
			name: "3.3 several OperatorGroups", given: []given{enforced, present, group("a", nil),
				group("shop-x7", nil, generated)},
			want:    map[string]string{TypeOperatorGroup: "False TooManyOperatorGroups"},
			says:    map[string]string{TypeOperatorGroup: "there is more than one OperatorGroup in namespace shop, so that OLM installs nothing there: a, shop-x7"},
			related: map[string][]string{kindOperatorGroup: {"a NonCompliant There is more than one OperatorGroup in this namespace", "shop-x7 NonCompliant There is more than one OperatorGroup in this namespace"}},
		},
		{
			name: "3.4 one of another owner", given: []given{enforced, present, group("extra", nil)},
			want: map[string]string{TypeOperatorGroup: "True PreexistingOperatorGroupFound"},
			says: map[string]string{TypeOperatorGroup: "the policy does not specify an OperatorGroup but one already exists in the namespace - " +
				"assuming that OperatorGroup is correct"},
			related: map[string][]string{kindOperatorGroup: {"extra Compliant Resource found as expected"}},
		},
		{
			name:  "4.1 another name than the policy's is never joined by a second group",
			given: []given{enforced, present, policyGroup(), group("incorrect", nil)},
			want:  map[string]string{TypeOperatorGroup: "False OperatorGroupMismatch"},
			says: map[string]string{TypeOperatorGroup: `the OperatorGroup shop/incorrect does not match the policy: metadata.name is "incorrect", want "scoped"; ` +
				`a namespace can have only one`},
			related: map[string][]string{kindOperatorGroup: {"incorrect NonCompliant Resource found but does not match",
				"scoped NonCompliant Resource not found but should exist"}},
		},
		{
			name: "4.2 the policy's own group", given: []given{enforced, present, policyGroup(targeting(`["shop"]`)),
				group("scoped", targets("shop"))},
			want: map[string]string{TypeOperatorGroup: "True OperatorGroupMatches"},
		},
		{
			name: "4.3 other targets, informing", given: []given{present, policyGroup(targeting(`["shop"]`)),
				group("scoped", targets())},
			want:    map[string]string{TypeOperatorGroup: "False OperatorGroupMismatch"},
			says:    map[string]string{TypeOperatorGroup: `the OperatorGroup shop/scoped does not match the policy: spec.targetNamespaces is [], want ["shop"]`},
			related: map[string][]string{kindOperatorGroup: {"scoped NonCompliant Resource found but does not match"}},
		},
		{
			name: "4.4 other targets, enforced", given: []given{enforced, present, policyGroup(targeting(`["shop"]`)),
				group("scoped", targets("a"))},
			want:    map[string]string{TypeOperatorGroup: "False OperatorGroupMismatch"},
			actions: []string{"update OperatorGroup shop/scoped"},
			done:    []string{"OperatorGroupCompliant True OperatorGroupUpdated"},
		},
		{
			name:  "4.5 the right group among several",
			given: []given{enforced, present, policyGroup(), group("extra", nil), group("scoped", nil)},
			want:  map[string]string{TypeOperatorGroup: "False TooManyOperatorGroups"},
		},
		{
			name: "20.1 targets in another order are the same",
			given: []given{enforced, present, policyGroup(targeting(`["a","shop","b"]`)),
				group("scoped", targets("shop", "b", "a"))},
			want: map[string]string{TypeOperatorGroup: "True OperatorGroupMatches"},
		},
		{
			name:  "27.1 targets that the policy no longer lists stay",
			given: []given{enforced, present, policyGroup(targeting(`[]`)), group("scoped", targets("a"))},
			want:  map[string]string{TypeOperatorGroup: "True OperatorGroupMatches"},
		},
		{
			name: "27.1 a selector is replaced as a whole",
			given: []given{enforced, present, policyGroup(func(g *policyv1beta2.OperatorGroupTemplate) {
				g.Selector = raw(`{"matchExpressions":[{"key":"env","operator":"Exists"}]}`)
			}), group("scoped", map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"env": "prod"}}})},
			says: map[string]string{TypeOperatorGroup: `the OperatorGroup shop/scoped does not match the policy: spec.selector is {"matchLabels":{"env":"prod"}}, ` +
				`want {"matchExpressions":[{"key":"env","operator":"Exists"}]}`},
			actions: []string{"update OperatorGroup shop/scoped"},
		},
		{
			name: "story 5: target.namespaces means targetNamespaces",
			given: []given{enforced, present, policyGroup(func(g *policyv1beta2.OperatorGroupTemplate) {
				g.Target = &policyv1beta2.OperatorGroupTarget{Namespaces: raw(`["shop"]`)}
			}), group("scoped", targets("other"))},
			says:    map[string]string{TypeOperatorGroup: `the OperatorGroup shop/scoped does not match the policy: spec.targetNamespaces is ["other"], want ["shop"]`},
			actions: []string{"update OperatorGroup shop/scoped"},
		},
		{
			name: "001 a group that the installed version does not support cannot be used",
			given: []given{enforced, present, csv("etcd.v1.2.0"), csvModes(ownNamespace, singleNamespace),
				channelModes(allNamespaces), group("extra", nil)},
			want: map[string]string{TypeOperatorGroup: "False OperatorGroupMismatch"},
			says: map[string]string{TypeOperatorGroup: "the OperatorGroup shop/extra cannot be used for etcd: its mode is AllNamespaces, " +
				"supported are OwnNamespace, SingleNamespace"},
			related: map[string][]string{kindOperatorGroup: {"extra NonCompliant Resource found but does not match"}},
		},
		{
			name:  "001 a group that the channel does not support keeps the Subscription from being made",
			given: []given{enforced, channelModes(allNamespaces), group("extra", targets("a", "b"))},
			want: map[string]string{TypeOperatorGroup: "False OperatorGroupMismatch",
				TypeSubscription: "False SubscriptionMissing"},
			says: map[string]string{TypeSubscription: "the required Subscription shop/etcd was not found and will not be created until the OperatorGroup is correct"},
		},
		{
			name: "001 the policy's own group is judged by the modes too",
			given: []given{enforced, present, policyGroup(targeting(`["a"]`)), channelModes(ownNamespace),
				group("scoped", targets("a"))},
			want: map[string]string{TypeOperatorGroup: "False OperatorGroupMismatch"},
		},
		{
			name:  "001 a group that could not be used is not made",
			given: []given{enforced, policyGroup(targeting(`["a"]`)), channelModes(ownNamespace)},
			want:  map[string]string{TypeOperatorGroup: "False OperatorGroupMissing"},
			says: map[string]string{TypeOperatorGroup: "the required OperatorGroup shop/scoped was not found; the OperatorGroup shop/scoped cannot be used for etcd: " +
				"its mode is SingleNamespace, supported are OwnNamespace"},
		},
		{
			name:  "001 a group for several namespaces, its own among them, needs both modes",
			given: []given{present, channelModes(multiNamespace), group("extra", targets("a", "shop"))},
			want:  map[string]string{TypeOperatorGroup: "False OperatorGroupMismatch"},
		},
		{
			name: "001 what a selector selects is not guessed", given: []given{present, channelModes(allNamespaces),
				group("extra", map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"a": "b"}}})},
			want: map[string]string{TypeOperatorGroup: "True PreexistingOperatorGroupFound"},
			says: map[string]string{TypeOperatorGroup: "the policy does not specify an OperatorGroup but one already exists in the namespace - " +
				"assuming that OperatorGroup is correct; OLM has found no namespace that its spec.selector selects, and installs nothing here until there is one"},
		},
		{
			name: "001 a selector of the policy that selects nothing",
			given: []given{enforced, present, policyGroup(func(g *policyv1beta2.OperatorGroupTemplate) {
				g.Selector = raw(`{"matchLabels":{"env":"prod"}}`)
			}), group("scoped", map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"env": "prod"}}})},
			want: map[string]string{TypeOperatorGroup: "True OperatorGroupMatches"},
			says: map[string]string{TypeOperatorGroup: "the OperatorGroup matches what is required by the policy; " +
				"OLM has found no namespace that its spec.selector selects, and installs nothing here until there is one"},
		},
		{
			name: "001 a selector that selects something", given: []given{present,
				group("extra", map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"a": "b"}}},
					func(g *olm.OperatorGroup) {
						g.Status.Namespaces = []string{"a", "b"}
					})},
			says: map[string]string{TypeOperatorGroup: "the policy does not specify an OperatorGroup but one already exists in the namespace - " +
				"assuming that OperatorGroup is correct"},
		},
		{
			name: "001 a selector counts for what OLM found by it", given: []given{present, channelModes(allNamespaces),
				group("extra", map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"a": "b"}}},
					func(g *olm.OperatorGroup) {
						g.Status.Namespaces = []string{"a", "b"}
					})},
			want: map[string]string{TypeOperatorGroup: "False OperatorGroupMismatch"},
		},
		{
			name:    "no group wanted, only its own namespace supported",
			given:   []given{enforced, present, channelModes(ownNamespace)},
			actions: []string{"create OperatorGroup shop/shop-*"},
		},
		{
			name:  "no group wanted, and only the author can say for which namespaces",
			given: []given{enforced, present, channelModes(singleNamespace)},
			want:  map[string]string{TypeOperatorGroup: "False OperatorGroupMissing"},
			says: map[string]string{TypeOperatorGroup: "the required OperatorGroup was not found in namespace shop; etcd supports neither AllNamespaces nor OwnNamespace " +
				"(supported are SingleNamespace), so spec.operatorGroup has to name its target namespaces"},
		},
		{
			name: "no group wanted, and nothing supported", given: []given{enforced, present, channelModes()},
			says: map[string]string{TypeOperatorGroup: "the required OperatorGroup was not found in namespace shop; etcd supports neither AllNamespaces nor OwnNamespace " +
				"(supported are none), so spec.operatorGroup has to name its target namespaces"},
		},
		{
			name: "R-LP-8 several groups do not keep an existing Subscription from being corrected",
			given: []given{enforced, group("a", nil), group("b", nil),
				subscription("etcd", func(s *olm.Subscription) { s.Spec.Channel = "beta" })},
			want:    map[string]string{TypeOperatorGroup: "False TooManyOperatorGroups"},
			actions: []string{"update Subscription shop/etcd"},
		},
	} {
		s.run(t)
	}
}

// recordedGroup records an OperatorGroup, which is deleted by now, for one namespace and with an account.
func recordedGroup(in *fixture) {
	in.contents.Record = &state.InstallRecord{Namespace: "shop", Group: &state.RecordedGroup{
		Spec: []byte(`{"targetNamespaces":["shop"],"serviceAccountName":"installer"}`)}}
}

func TestEvaluateGroupObjects(t *testing.T) {
	updated := func(name string, spec map[string]any) map[string]any {
		return map[string]any{"apiVersion": "operators.coreos.com/v1", "kind": "OperatorGroup", "spec": spec,
			"metadata": map[string]any{"namespace": "shop", "name": name, "uid": "uid-" + name, "resourceVersion": ""},
			"status":   map[string]any{"namespaces": []any{}}}
	}
	created := func(metadata map[string]any, fields ...string) map[string]any {
		name, _ := metadata["name"].(string)
		generated, _ := metadata["generateName"].(string)
		metadata["namespace"], metadata["annotations"] = "shop", map[string]any{metakey.CreatedBy: createdMark(
			kindOperatorGroup, olm.ObjectMeta{Namespace: "shop", Name: name, GenerateName: generated}, fields...)}
		return metadata
	}
	for _, c := range []struct {
		name  string
		given []given
		want  map[string]any
	}{
		{"AllNamespaces by default", []given{enforced, present}, map[string]any{
			"apiVersion": "operators.coreos.com/v1", "kind": "OperatorGroup",
			"metadata": created(map[string]any{"generateName": "shop-"}), "spec": map[string]any{},
		}},
		{"its own namespace where nothing else is supported", []given{enforced, present, channelModes(ownNamespace)},
			map[string]any{
				"apiVersion": "operators.coreos.com/v1", "kind": "OperatorGroup",
				"metadata": created(map[string]any{"generateName": "shop-"}, "targetNamespaces"), "spec": targets("shop"),
			}},
		{"as the policy says", []given{enforced, present,
			policyGroup(targeting(`["shop"]`), func(g *policyv1beta2.OperatorGroupTemplate) {
				g.ServiceAccountName, g.UpgradeStrategy, g.StaticProvidedAPIs = "installer", "Default", raw("true")
			})}, map[string]any{
			"apiVersion": "operators.coreos.com/v1", "kind": "OperatorGroup",
			"metadata": created(map[string]any{"name": "scoped"}, "serviceAccountName", "staticProvidedAPIs",
				"targetNamespaces", "upgradeStrategy"),
			"spec": map[string]any{"targetNamespaces": []any{"shop"}, "serviceAccountName": "installer",
				"upgradeStrategy": "Default", "staticProvidedAPIs": true},
		}},
		{"P2, E5: as the deleted one is recorded", []given{enforced, present, recordedGroup}, map[string]any{
			"apiVersion": "operators.coreos.com/v1", "kind": "OperatorGroup",
			"metadata": created(map[string]any{"generateName": "shop-"}, "serviceAccountName", "targetNamespaces"),
			"spec":     map[string]any{"targetNamespaces": []any{"shop"}, "serviceAccountName": "installer"},
		}},
		{"P2: as the policy says, as the account that is recorded",
			[]given{enforced, present, policyGroup(targeting(`["a"]`)), recordedGroup}, map[string]any{
				"apiVersion": "operators.coreos.com/v1", "kind": "OperatorGroup",
				"metadata": created(map[string]any{"name": "scoped"}, "targetNamespaces"),
				"spec":     map[string]any{"targetNamespaces": []any{"a"}, "serviceAccountName": "installer"},
			}},
		{"made before it was known what is supported",
			[]given{enforced, present, channelModes(ownNamespace), group("shop-x7", nil, generated), mine},
			updated("shop-x7", targets("shop"))},
		{"an update keeps what the policy does not set",
			[]given{enforced, present, policyGroup(targeting(`["shop"]`)), group("scoped", map[string]any{
				"targetNamespaces": []any{"a"}, "serviceAccountName": "kept"})},
			updated("scoped", map[string]any{"targetNamespaces": []any{"shop"}, "serviceAccountName": "kept"})},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := Evaluate(input(c.given...))
			if len(out.Actions) != 1 {
				t.Fatalf("%d actions", len(out.Actions))
			}
			if diff := cmp.Diff(c.want, out.Actions[0].Object); diff != "" {
				t.Errorf("object (-want +got):\n%s", diff)
			}
		})
	}
}
