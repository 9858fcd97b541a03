package rules

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// AuthorNeeds returns the rights that the author of an OperatorPolicy needs for what it approves, and for its effects
// outside of its own namespace, beside its templates and its exceptions: docs/rules.md has the table. One that informs
// reports on another namespace; an enforced one acts there.
func AuthorNeeds(op *policyv1beta2.OperatorPolicy) []dependency.Need {
	needs := append(deletionNeeds(op), approvalNeeds(op)...)
	if !op.Spec.IsEnforced() {
		needs = append(needs, previewNeeds(op)...)
	}
	return needs
}

// elsewhere returns a name of a namespace as a right has it, "" for any where that is not written in plain text; own is
// set if it is the one of the policy.
func elsewhere(op *policyv1beta2.OperatorPolicy, name string) (namespace string, own bool) {
	if name == "" || strings.Contains(name, "{{") {
		return "", false
	}
	return name, name == op.Namespace
}

// deletionNeeds returns the rights to delete what spec.deletion protects in other namespaces. Deny needs them beside
// those of Confirm, so that a stricter action needs them again.
func deletionNeeds(op *policyv1beta2.OperatorPolicy) (needs []dependency.Need) {
	add := func(group, resource, kind, namespace, name string) {
		object := kind + " " + text.Name(name)
		if name == "" {
			object = "any " + kind
		}
		if kind != "Namespace" {
			object = objectsIn(namespace, object)
		}
		right := dependency.Right{Verb: "delete", Group: group, Resource: resource, Namespace: namespace, Name: name}
		needs = append(needs, dependency.Need{Rights: right.Wide(), Rule: RuleOperatorPolicyAuthorRight,
			Field: "spec.deletion", Does: "keeps from deletion", Object: object, May: "delete"})
	}
	action, sub := op.Spec.EffectiveDeletion(), &op.Spec.Subscription
	if action == policyv1beta2.DeletionAllow {
		return nil
	}
	if target, own := elsewhere(op, sub.Namespace); !own {
		add("", "namespaces", "Namespace", target, target)
		add(olm.Group, "operatorgroups", "OperatorGroup", target, "")
	}
	if source, own := elsewhere(op, sub.SourceNamespace); !own && sub.Source != "" && sub.SourceNamespace != "" {
		name, _ := elsewhere(op, sub.Source)
		add("", "namespaces", "Namespace", source, source)
		add(olm.Group, "catalogsources", "CatalogSource", source, name)
	}
	if action == policyv1beta2.DeletionDeny {
		for _, need := range slices.Clone(needs) {
			need.Field = "spec.deletion Deny"
			needs = append(needs, need)
		}
	}
	return needs
}

// approvalNeeds returns the right to approve the plans that Opgate approves although no Subscription asks for it.
func approvalNeeds(op *policyv1beta2.OperatorPolicy) []dependency.Need {
	spec := &op.Spec
	if !spec.IsEnforced() || spec.IsMustNotHave() || spec.PlanApproval != policyv1beta2.PlanApprovalIfAllowed {
		return nil
	}
	target, _ := elsewhere(op, spec.Subscription.Namespace)
	return []dependency.Need{{Rights: approveRight(target).Wide(), Rule: RuleOperatorPolicyAuthorRight,
		Field: "spec.planApproval " + string(spec.PlanApproval), Does: "approves", Object: objectsIn(target, "InstallPlans"),
		May: "approve"}}
}

// objectsIn returns text for objects in a namespace, "" for any.
func objectsIn(namespace, objects string) string {
	if namespace == "" {
		return objects
	}
	return objects + " in namespace " + text.Name(namespace)
}

// previewNeeds returns the right to what the status, and warnings, tell of another namespace.
func previewNeeds(op *policyv1beta2.OperatorPolicy) []dependency.Need {
	target, own := elsewhere(op, op.Spec.Subscription.Namespace)
	if own || op.Spec.Subscription.Name == "" {
		return nil
	}
	right := dependency.Right{Verb: "get", Group: olm.Group, Resource: "subscriptions", Namespace: target}
	return []dependency.Need{{Rights: right.Wide(), Rule: RuleOperatorPolicyAuthorRight, Field: "spec.remediationAction inform", Does: "reports on",
		Object: objectsIn(target, "Subscriptions"), May: "get"}}
}

// Preview returns the right without which a write is not told of another namespace.
func Preview(op *policyv1beta2.OperatorPolicy) []dependency.Need {
	needs := previewNeeds(op)
	for i := range needs {
		needs[i].Narrow = &schema.GroupKind{Group: olm.Group, Kind: "Subscription"}
	}
	return needs
}

// NewNeeds returns what the author of a write needs rights to, and whether all that the policy needs is verified then.
// What does not change was verified for its own author, if the stored policy, old, is verified by the key. Without that,
// a policy keeps what it has until its spec changes, but for what NormalizeOperatorPolicy fills in, or its mark does.
func NewNeeds(key []byte, op, old *policyv1beta2.OperatorPolicy) (needs []dependency.Need, all bool) {
	verified, touched, edited := false, true, true
	if op = normalized(op, old); old != nil {
		verified = AuthorVerified(key, old)
		touched = old.Annotations[metakey.Verified] != op.Annotations[metakey.Verified] && !(verified && AuthorVerified(key, op))
		old = normalized(old, nil)
		edited = !reflect.DeepEqual(old.Spec, op.Spec)
	}
	lookups, others := LookupNeeds(Lookups(op)), AuthorNeeds(op)
	asked := touched || !SameTemplates(old, op)
	all = verified || (asked || len(lookups) == 0) && (touched || edited || len(others) == 0)
	if asked {
		needs = lookups
	}
	if edited || touched {
		needs = append(needs, others...)
	}
	var stored []dependency.Need
	if verified && !touched {
		stored = AuthorNeeds(old)
	}
	seen := map[dependency.Right]bool{}
	needs = slices.DeleteFunc(needs, func(n dependency.Need) bool {
		right := n.Rights[len(n.Rights)-1]
		again := seen[right] || slices.ContainsFunc(stored, func(o dependency.Need) bool { return reflect.DeepEqual(o, n) })
		seen[right] = seen[right] || !again
		return again
	})
	return needs, all
}

// normalized returns a policy as NormalizeOperatorPolicy fills it in.
func normalized(op, old *policyv1beta2.OperatorPolicy) *policyv1beta2.OperatorPolicy {
	filled := *op
	filled.Spec.ComplianceConfig, _ = operatorpolicy.FilledConfig(op, old)
	return &filled
}

// ExceptionNeeds returns the right that exceptions of a policy or a Constraint need, of which a write widens some.
func ExceptionNeeds(id verdict.RuleID, of verdict.PolicyRef, right dependency.Right, widened []string) []dependency.Need {
	if len(widened) == 0 {
		return nil
	}
	return []dependency.Need{{Rights: []dependency.Right{right}, Rule: id, Field: widened[0], Does: "sets aside what",
		Object: of.String() + " refuses", May: "override"}}
}

// UnverifiedAuthor returns a sentence on a policy whose author was not asked for the rights that it needs; "" for
// another one, and where nothing can be verified since there is no key.
func UnverifiedAuthor(key []byte, op *policyv1beta2.OperatorPolicy) string {
	needs := AuthorNeeds(op)
	if len(key) == 0 || len(needs) == 0 || AuthorVerified(key, op) {
		return ""
	}
	return verdict.Sentence("the policy was written before the rights of its author were asked for, or while opgate did not answer, and "+
		needs[0].Field+" stays in force until its spec changes", RuleOperatorPolicyAuthorRight,
		"a user with the right to "+needs[0].Rights[len(needs[0].Rights)-1].String()+" has to write it again, with annotation "+
			metakey.Verified+" changed")
}

// CreatedMark returns the metakey.CreatedBy of an object that a policy creates: its UID, the fields of the spec that it
// sets, and a signature for one kind, namespace and name, since users may write annotations. It is empty while there is
// no key.
func CreatedMark(key []byte, op *policyv1beta2.OperatorPolicy, kind string, o *olm.ObjectMeta, fields []string) string {
	if len(key) == 0 || op.UID == "" {
		return ""
	}
	signed := fmt.Sprintf("%s %v", op.UID, fields)
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s v1\n%q %q %q %q", metakey.CreatedBy, kind, o.Namespace, cmp.Or(o.GenerateName, o.Name), signed)
	return signed + " " + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// Created reports whether a policy created this very object, and which fields of its spec the policy has set: by its
// mark, or by the status of the policy, which records it without the fields, and for objects of earlier releases alone.
func Created(
	key []byte, op *policyv1beta2.OperatorPolicy, kind string, o *olm.ObjectMeta,
) (fields []string, marked, created bool) {
	mark := o.Annotations.CreatedBy
	if list, ok := strings.CutPrefix(mark, string(op.UID)+" ["); ok {
		list, _, _ = strings.Cut(list, "]")
		fields = strings.Fields(list)
		if own := CreatedMark(key, op, kind, o, fields); own != "" && hmac.Equal([]byte(own), []byte(mark)) {
			return fields, true, true
		}
	}
	return nil, false, o.UID != "" && slices.ContainsFunc(op.Status.RelatedObjects, func(r policyv1beta2.RelatedObject) bool {
		p := r.Properties
		return r.Object.Kind == kind && r.Object.Metadata.Name == o.Name && p != nil && p.UID == o.UID &&
			p.CreatedByPolicy != nil && *p.CreatedByPolicy
	})
}

// GroupOwner returns the policy of a namespace that created an OperatorGroup; nil if none did, or it is gone.
func GroupOwner(key []byte, ns *state.Namespace, group *olm.ObjectMeta) *operatorpolicy.Policy {
	for _, p := range ns.Policies() {
		if p.Object != nil {
			if _, _, created := Created(key, p.Object, olm.KindOperatorGroup, group); created {
				return p
			}
		}
	}
	return nil
}

// GroupHolder returns the policy to which another one leaves the OperatorGroup that it names, since they differ in a
// field of it, and why, as a clause; nil if it may write the group. One that a policy created belongs to that. Any other,
// and one that does not exist, is written by the oldest of the policies that install with it.
func GroupHolder(key []byte, ns *state.Namespace, p *operatorpolicy.Policy) (holder *operatorpolicy.Policy, field, why string) {
	group := p.Group
	if group == nil {
		return nil, "", ""
	}
	for _, g := range ns.Groups() {
		if g.Metadata.Name != group.Name {
			continue
		}
		switch owner := GroupOwner(key, ns, &g.Metadata); {
		case owner == nil:
		case owner.Key() == p.Key():
			return nil, "", ""
		default:
			if field = group.Differs(g.Spec.Fields(), true); field != "" {
				return owner, field, "which created it"
			}
		}
	}
	for _, other := range ns.Policies() {
		if other.Group == nil || other.Group.Name != group.Name || !installs(other) || !older(other, p) ||
			holder != nil && !older(other, holder) {
			continue
		}
		if differs := group.Differs(other.Group.Fields, false); differs != "" {
			holder, field, why = other, differs, "which names it first"
		}
	}
	return holder, field, why
}

// installs reports whether a policy writes an OperatorGroup.
func installs(p *operatorpolicy.Policy) bool {
	return p.Enforced && p.Object.Spec.ComplianceType == policyv1beta2.MustHave
}

// older orders policies by their age and name. One that is not stored yet is the youngest.
func older(a, b *operatorpolicy.Policy) bool {
	created := func(p *operatorpolicy.Policy) int64 { return cmp.Or(p.Origin().Created, math.MaxInt64) }
	return cmp.Or(cmp.Compare(created(a), created(b)), cmp.Compare(a.Key(), b.Key())) < 0
}

// groupOfAnother refuses a policy that would change the OperatorGroup of another one.
func groupOfAnother(in *OperatorPolicyInput) verdict.Finding {
	p := in.Policy
	if !installs(p) || in.Namespace == nil || p.TargetNamespace == "" {
		return verdict.Finding{}
	}
	holder, field, why := GroupHolder(nil, in.Namespace(p.TargetNamespace), p)
	if holder == nil {
		return verdict.Finding{}
	}
	value, _ := json.Marshal(p.Group.Fields[field]) // it was read from JSON
	path := "spec.operatorGroup." + field
	return verdict.Finding{Decision: verdict.Deny, Field: path, From: holder.Ref(),
		What: path + " " + text.Truncate(string(value), maxShownField) + " is not allowed: OperatorGroup " +
			text.Name(p.TargetNamespace+"/"+p.Group.Name) + " belongs to " + holder.Source() + ", " + why,
		Accepted: "leave the field out, write the same in both policies, or install the operator in another namespace"}
}

// maxShownField bounds the value of a field in a refusal, in bytes.
const maxShownField = 120
