package rules

import (
	"bytes"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	policyv1 "github.com/opgate/opgate/api/policy/v1"
	"github.com/opgate/opgate/rules/ordering"
)

// CreateRight is the right to create objects of a resource, in a namespace, or in the whole cluster where that is empty.
type CreateRight struct{ Group, Resource, Namespace string }

// String names the right as somebody needs to who grants it.
func (r CreateRight) String() string {
	resource := schema.GroupResource{Group: r.Group, Resource: r.Resource}.String()
	if r.Namespace == "" {
		return "create " + resource + " in the whole cluster"
	}
	return "create " + resource + " in namespace " + r.Namespace
}

// TemplateRight is a right that the author of a Policy needs, and the first template that needs it.
type TemplateRight struct {
	CreateRight
	field, template string
}

// TemplateRights are what the author of a Policy needs: the loop applies templates with rights of its own, which are not the
// author's to lend (threat O14). Templates that stay as they are were somebody else's to answer for. Of a Policy that is disabled
// nothing is made; who enables it is asked. Old is the stored Policy, nil on create.
func TemplateRights(policy, old *policyv1.Policy) []TemplateRight {
	if policy.Spec.Disabled {
		return nil
	}
	known := map[ordering.Ref][]byte{}
	if old != nil && !old.Spec.Disabled && old.Spec.RemediationAction == policy.Spec.RemediationAction {
		for _, t := range ordering.Read(old).Templates {
			known[t.Ref] = old.Spec.PolicyTemplates[t.Index].ObjectDefinition.Raw
		}
	}
	var needed []TemplateRight
	for _, t := range ordering.Read(policy).Templates {
		before, stays := known[t.Ref]
		if !t.Readable || stays && bytes.Equal(before, policy.Spec.PolicyTemplates[t.Index].ObjectDefinition.Raw) {
			continue // what cannot be read is not applied
		}
		right := rightFor(t.Ref)
		if !slices.ContainsFunc(needed, func(n TemplateRight) bool { return n.CreateRight == right }) {
			needed = append(needed, TemplateRight{right, fmt.Sprintf("spec.policy-templates[%d]", t.Index), t.Ref.String()})
		}
	}
	return needed
}

// rightFor is the right to create an object of a template. Kinds of policies belong to the namespace of their Policy; of others it
// is not known here, and whoever may create them anywhere may create them there.
func rightFor(object ordering.Ref) CreateRight {
	plural, singular := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Group: object.Group, Kind: object.Kind})
	right := CreateRight{Group: object.Group, Resource: plural.Resource}
	if object.Group == ordering.GatekeeperConstraintGroup { // which has no plurals
		right.Resource = singular.Resource
	}
	if object.Group == policyv1.Group {
		right.Namespace = object.Namespace
	}
	return right
}

// Lacking refuses a Policy whose author does not have a right. Unknown is set where that could not be found out.
func (v *Verdict) Lacking(right TemplateRight, unknown bool) {
	r := Reason{Rule: RuleParentEscalation, Decision: Deny, Field: right.field, Message: sentence(
		right.field+" makes "+right.template+", which its author may not create", RuleParentEscalation, "it needs the right to "+right.String())}
	if unknown {
		r.Decision = Hold
		r.Message = sentence("whether its author may create "+right.template+", as "+right.field+" does, could not be checked", RuleParentEscalation, "try again")
	}
	v.refuse(r)
	*v = v.sorted()
}
