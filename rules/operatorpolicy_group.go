package rules

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

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
	group, _ := operatorpolicy.GroupOf(&p.Object.Spec)
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
		if other.Object == nil || !installs(other) || !older(other, p) || holder != nil && !older(other, holder) {
			continue
		}
		if theirs, _ := operatorpolicy.GroupOf(&other.Object.Spec); theirs != nil && theirs.Name == group.Name {
			if differs := group.Differs(theirs.Fields, false); differs != "" {
				holder, field, why = other, differs, "which names it first"
			}
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
	group, _ := operatorpolicy.GroupOf(&p.Object.Spec)
	value, _ := json.Marshal(group.Fields[field]) // it was read from JSON
	path := "spec.operatorGroup." + field
	return verdict.Finding{Decision: verdict.Deny, Field: path, From: holder.Ref(),
		What: path + " " + text.Truncate(string(value), maxShownField) + " is not allowed: OperatorGroup " +
			text.Name(p.TargetNamespace+"/"+group.Name) + " belongs to " + holder.Source() + ", " + why,
		Accepted: "leave the field out, write the same in both policies, or install the operator in another namespace"}
}

// maxShownField bounds the value of a field in a refusal, in bytes.
const maxShownField = 120
