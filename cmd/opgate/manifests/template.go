package manifests

import (
	"encoding/json"
	"fmt"
	"slices"

	kjson "sigs.k8s.io/json"

	policyv1 "github.com/opgate/opgate/api/policy/v1"
	"github.com/opgate/opgate/rules/dependency"
)

// policyDocument is a Policy and its place in the input.
type policyDocument struct {
	document
	object *Object
	policy *policyv1.Policy
}

// allTemplates reads what Policies apply, each behind its Policy. All else has been read by then.
func (l *loader) allTemplates() {
	for _, p := range l.policies {
		written := l.Objects
		l.Objects = nil
		l.templates(p)
		l.Objects = slices.Insert(written, slices.Index(written, p.object)+1, l.Objects...)
	}
}

// templates reads the OperatorPolicies and Constraints that a Policy applies: they are judged, and judge the rest, like
// those outside Policies. Opgate does not judge other templates, nor a template whose object is in the input as well,
// as in what was read from a cluster.
func (l *loader) templates(p policyDocument) {
	d, policy := p.document, p.policy
	if policy.Spec.Disabled {
		return
	}
	for _, t := range dependency.Read(policy).Templates {
		if t.Fault == "" && !t.Suspendable && isKnown(t.Ref.Group) {
			l.unjudged = append(l.unjudged, unjudged{d.Place, t.Ref.Kind, t.Ref.Name, false})
		}
		if _, made := l.seen[identity{t.Ref.Kind, t.Ref.Namespace, t.Ref.Name}]; !t.Suspendable || t.Fault != "" ||
			made {
			continue
		}
		path := fmt.Sprintf("spec.policy-templates[%d].objectDefinition", t.Index)
		raw, err := applied(policy.Spec.PolicyTemplates[t.Index].ObjectDefinition.Raw, policy)
		if err != nil {
			l.fault(d, []fieldFault{{path, path + " cannot be read: " + reworded(err)}})
			continue
		}
		inner := document{Place: d.at(d.tree.line(path, d.Line)), raw: raw, tree: d.tree.within(path), template: true}
		inner.comments = commentsIn(inner.tree, d.comments)
		l.value(inner, origin{})
	}
}

// applied is a template with what its Policy sets: the namespace, and the remediation.
func applied(raw []byte, policy *policyv1.Policy) ([]byte, error) {
	var object map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &object); err != nil {
		return nil, err
	}
	if err := dependency.Override(object, policy); err != nil {
		return nil, err
	}
	return json.Marshal(object)
}
