package compliance

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
)

func TestRemovalOfGroups(t *testing.T) {
	clean := func(s *site) { s.subscriptions, s.csvs, s.plans, s.crds = nil, nil, nil, nil }
	behavior := func(a policyv1beta2.RemovalAction) func(*site) {
		return func(s *site) { s.policy.Spec.RemovalBehavior.OperatorGroups = a }
	}
	named := func(s *site) {
		s.policy.Spec.OperatorGroup = &policyv1beta2.OperatorGroupTemplate{Name: "scoped-operator-group"}
		s.groups = []*olm.OperatorGroup{aGroup("scoped-operator-group", "")}
	}
	extra := func(s *site) {
		s.groups = append(s.groups, aGroup("extra", ""))
	}
	neighbour := func(s *site) { s.subscriptions = append(s.subscriptions, aSubscription("grafana", "")) }
	// made is the group of a policy that named it, created it, and no longer names it.
	made := func(s *site) {
		s.groups = []*olm.OperatorGroup{aGroup("og-etcd", "")}
		recordCreated(s.policy, s.groups[0])
	}
	// others is as made, but for another policy.
	others := func(s *site) {
		s.groups = []*olm.OperatorGroup{aGroup("scoped-operator-group", "")}
		op := &policyv1beta2.OperatorPolicy{}
		op.Namespace, op.Name, op.UID = "policies", "grafana", "uid-other"
		recordCreated(op, s.groups[0])
		s.others = append(s.others, rules.NewOperatorPolicy(op))
	}
	const deleted = "is present and will be deleted"
	const foreign = ", being neither named in spec.operatorGroup nor created by the policy"
	for name, c := range map[string]struct {
		site          *site
		want, deletes string
	}{
		"14.1 a generated one goes": {installed(clean), "OperatorGroupPresent: the OperatorGroup shop/shop-x7 " +
			deleted, "OperatorGroup shop-x7"},
		"14.2 the one of the policy goes": {installed(clean, named),
			"OperatorGroupPresent: the OperatorGroup shop/scoped-operator-group " + deleted,
			"OperatorGroup scoped-operator-group"},
		"stories 5 and 6: the one that the policy created goes": {installed(clean, made),
			"OperatorGroupPresent: the OperatorGroup shop/og-etcd " + deleted, "OperatorGroup og-etcd"},
		"stories 5 and 7: it goes with the version": {installed(made, clean, forbidding("etcd.v0.9.4")),
			"OperatorGroupPresent: the OperatorGroup shop/og-etcd " + deleted, "OperatorGroup og-etcd"},
		"it goes if the policy names another one by now": {installed(clean, named, made),
			"OperatorGroupPresent: the OperatorGroup shop/og-etcd " + deleted, "OperatorGroup og-etcd"},
		"it stays if something else uses it": {installed(clean, made, neighbour),
			"OperatorGroupKept: the OperatorGroup shop/og-etcd is kept, since the Subscription shop/grafana uses it",
			""},
		"it stays if it is to be kept": {installed(clean, made, behavior(policyv1beta2.RemovalKeep)),
			"OperatorGroupKept: the OperatorGroup shop/og-etcd is kept, since spec.removalBehavior.operatorGroups is Keep", ""},
		"it stays if it has an owner": {installed(clean, made,
			func(s *site) { s.groups[0].Metadata.OwnerReferences = olm.Owners{{}} }),
			"OperatorGroupKept: the OperatorGroup shop/og-etcd is kept, since it has ownerReferences, so something else manages it", ""},
		"another object of its name is not the policy's": {installed(clean, made,
			func(s *site) { s.groups[0].Metadata.UID = "uid-other" }),
			"OperatorGroupNotPresent: no OperatorGroup in namespace shop matches the policy; the OperatorGroup shop/og-etcd is kept" + foreign, ""},
		"14.3 one with an owner stays": {installed(clean, named,
			func(s *site) { s.groups[0].Metadata.OwnerReferences = olm.Owners{{}} }),
			"OperatorGroupKept: the OperatorGroup shop/scoped-operator-group is kept, since it has ownerReferences, so something else manages it", ""},
		"14.3 even if it is to be deleted": {installed(clean, named, behavior(policyv1beta2.RemovalDelete),
			func(s *site) { s.groups[0].Metadata.OwnerReferences = olm.Owners{{}} }),
			"OperatorGroupKept: the OperatorGroup shop/scoped-operator-group is kept, since it has ownerReferences, so something else manages it", ""},
		"D1: one that another policy created stays": {installed(clean, named, others, behavior(policyv1beta2.RemovalDelete)),
			"OperatorGroupKept: the OperatorGroup shop/scoped-operator-group is kept, since OperatorPolicy policies/grafana created it", ""},
		"14.4 one in use stays": {installed(clean, neighbour),
			"OperatorGroupKept: the OperatorGroup shop/shop-x7 is kept, since the Subscription shop/grafana uses it",
			""},
		"one that an operator without a Subscription uses stays": {installed(clean,
			func(s *site) { s.csvs = []*Installed{aCSV("grafana", "1.0.0")} }),
			"OperatorGroupKept: the OperatorGroup shop/shop-x7 is kept, since the ClusterServiceVersion shop/grafana.v1.0.0 uses it", ""},
		"one that the kept operator uses stays": {installed(
			func(s *site) { s.policy.Spec.RemovalBehavior.ClusterServiceVersions = policyv1beta2.RemovalKeep },
			withoutSubscription),
			"OperatorGroupKept: the OperatorGroup shop/shop-x7 is kept, since the ClusterServiceVersion shop/etcd.v0.9.4 uses it", ""},
		"one in use goes with Delete, which says so": {installed(clean, neighbour,
			behavior(policyv1beta2.RemovalDelete)),
			"OperatorGroupPresent: the OperatorGroup shop/shop-x7 " + deleted +
				", since spec.removalBehavior.operatorGroups is Delete, although the Subscription shop/grafana uses it",
			"OperatorGroup shop-x7"},
		"one that a version that is not meant uses stays with Delete": {installed(forbidding("etcd.v0.9.2"),
			behavior(policyv1beta2.RemovalDelete)),
			"OperatorGroupKept: the OperatorGroup shop/shop-x7 is kept, since the operator is also installed in a version that the policy does not match", ""},
		"15.1 another one is not the policy's": {installed(clean, named, inform,
			func(s *site) { s.groups[0].Metadata = anObject("incorrect-operator-group") }),
			"OperatorGroupNotPresent: no OperatorGroup in namespace shop matches the policy; the OperatorGroup shop/incorrect-operator-group is kept" + foreign, ""},
		"one that was not generated is not the policy's": {installed(clean,
			func(s *site) { s.groups[0].Metadata.GenerateName = "" }),
			"OperatorGroupNotPresent: no OperatorGroup in namespace shop matches the policy; the OperatorGroup shop/shop-x7 is kept" + foreign, ""},
		"several are too many to delete one": {installed(clean, extra),
			"TooManyOperatorGroups: the OperatorGroups shop/shop-x7, shop/extra are all in the namespace; none is deleted while there is more than one", ""},
		"several are kept like one": {installed(clean, extra, behavior(policyv1beta2.RemovalKeep)),
			"OperatorGroupKept: the OperatorGroups shop/shop-x7, shop/extra are kept, since spec.removalBehavior.operatorGroups is Keep", ""},
		"several do not matter if none is the policy's": {installed(clean, extra,
			func(s *site) { s.groups[0].Metadata.GenerateName = "" }),
			"OperatorGroupNotPresent: no OperatorGroup in namespace shop matches the policy; the OperatorGroups shop/shop-x7, shop/extra are kept" + foreign, ""},
		"one that is being deleted is not deleted again": {installed(clean,
			func(s *site) { s.groups[0].Metadata.DeletionTimestamp = "2026-11-21T10:00:00Z" }),
			"OperatorGroupDeleting: the OperatorGroup shop/shop-x7 is still being deleted", ""},
	} {
		t.Run(name, func(t *testing.T) {
			out := removal(c.site.input())
			if diff := cmp.Diff(c.want, short(t, out, TypeOperatorGroup)); diff != "" {
				t.Error(diff)
			}
			if got := deletions(out); got != c.deletes {
				t.Errorf("deletes %q, want %q", got, c.deletes)
			}
		})
	}
	t.Run("15.1 shows the one that is not there", func(t *testing.T) {
		s := installed(clean, named, inform,
			func(s *site) { s.groups[0].Metadata = anObject("incorrect-operator-group") })
		f := findingOf(t, removal(s.input()).Conditions, TypeOperatorGroup)
		if len(f.Related) != 1 || f.Related[0].Object.Metadata.Name != "scoped-operator-group" ||
			f.Related[0].Reason != relatedAbsent {
			t.Errorf("related: %+v", f.Related)
		}
	})
}
