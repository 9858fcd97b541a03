package compliance

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
)

// judgeGroups returns the OperatorGroups that the removal covers. With several it is ambiguous which one to
// delete.
func (s *scope) judgeGroups() (items []item, ambiguous bool) {
	groups := s.groups()
	why, unused := s.groupUse()
	for i := range groups {
		next := newItem(groups[i].Metadata, why)
		switch {
		case why != "": // whichever it is, none is deleted
		case !s.policysGroup(groups[i]):
			continue
		case s.ownerOf(groups[i]) != "":
			next = newItem(groups[i].Metadata, s.ownerOf(groups[i])+" created it")
		case len(groups[i].Metadata.OwnerReferences) > 0:
			next = newItem(groups[i].Metadata, "it has ownerReferences, so something else manages it")
		case next.removalState == going:
			next.why = unused
			ambiguous = ambiguous || len(groups) > 1
		}
		items = append(items, next)
	}
	return items, ambiguous
}

// groups returns the OperatorGroups of the policy's namespace.
func (s *scope) groups() []*olm.OperatorGroup {
	return filter(s.Namespace.Groups(), func(g *olm.OperatorGroup) bool { return g.Metadata.Namespace == s.namespace })
}

// policysGroup reports whether a group is the one that the policy names, or was generated for the namespace, or was
// created by the policy, which may have named it before and need not do so to remove the operator.
func (s *scope) policysGroup(g *olm.OperatorGroup) bool {
	if s.createdByPolicy(kindOperatorGroup, &g.Metadata) {
		return true
	}
	if named := s.Policy.Spec.OperatorGroup; named != nil {
		return g.Metadata.Name == named.Name
	}
	return g.Metadata.GenerateName == s.namespace+"-"
}

// ownerOf returns the other policy that created a group, "" if none did.
func (s *scope) ownerOf(g *olm.OperatorGroup) string {
	if owner := rules.GroupOwner(s.Key, s.Namespace, &g.Metadata); owner != nil && owner.Key() != s.Rules.Key() {
		return owner.Source()
	}
	return ""
}

// otherGroups says why the groups of a namespace in which none is the policy's are retained.
func (s *scope) otherGroups() string {
	var items []item
	for _, g := range s.groups() {
		items = append(items, item{ObjectMeta: g.Metadata})
	}
	if len(items) == 0 {
		return ""
	}
	objects, verb := noun(kindOperatorGroup, items)
	return "; " + objects + verb + "kept, being neither named in spec.operatorGroup nor created by the policy"
}

// groupUse returns why no group may be deleted, or else what is at risk from a deletion that is
// requested nevertheless. An operator without its group stops working, so what stays installed counts like
// other Subscriptions.
func (s *scope) groupUse() (keep, despite string) {
	behavior := s.Policy.Spec.RemovalBehavior.OperatorGroups
	if behavior == policyv1beta2.RemovalKeep {
		return keptIf(true, "operatorGroups"), ""
	}
	user := s.groupUser()
	switch {
	case user == "":
		return "", ""
	case behavior != policyv1beta2.RemovalDelete:
		return user + " uses it", ""
	case s.hasUnmeant():
		return "the operator is also installed in a version that the policy does not match", ""
	}
	return "", "spec.removalBehavior.operatorGroups is " + string(policyv1beta2.RemovalDelete) + ", although " + user +
		" uses it"
}

// groupUser returns the name of a remaining object that needs a group, or "".
func (s *scope) groupUser() string {
	leaves := func(items []item, name string) bool {
		return slices.ContainsFunc(items, func(i item) bool { return i.Name == name && i.removalState.remains() })
	}
	for _, sub := range s.Namespace.Subscriptions() {
		if sub.Metadata.Namespace == s.namespace &&
			!leaves(s.subscriptionItems, sub.Metadata.Name) {
			return "the Subscription " + named(&sub.Metadata)
		}
	}
	for _, c := range s.Namespace.CSVs() {
		if c.Metadata.Namespace == s.namespace && c.Metadata.Labels.CopiedFrom == "" &&
			!leaves(s.csvItems, c.Metadata.Name) {
			return "the ClusterServiceVersion " + named(&c.Metadata)
		}
	}
	return ""
}

// tooManyGroups is the condition if a group must be deleted and only the author can determine which.
func (s *scope) tooManyGroups() Condition {
	f := Condition{Type: TypeOperatorGroup, Status: metav1.ConditionFalse, Reason: "TooManyOperatorGroups"}
	var items []item
	for _, g := range s.Namespace.Groups() {
		items = append(items, item{ObjectMeta: g.Metadata})
		f.Related = append(f.Related, s.related(kindOperatorGroup, g.Metadata, policyv1beta2.NonCompliant, relatedTooManyGroups))
	}
	objects, verb := noun(kindOperatorGroup, items)
	f.Message = objects + verb + "all in the namespace; none is deleted while there is more than one"
	return f
}
