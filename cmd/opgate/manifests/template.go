package manifests

import (
	"encoding/json"
	"fmt"
	"maps"
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
	l.written = maps.Clone(l.seen)
	for _, p := range l.policies {
		written := l.Objects
		l.Objects = nil
		l.templates(p)
		at := slices.Index(written, p.object) + 1
		if at == 0 { // the second of one name
			at = len(written)
		}
		l.Objects = slices.Insert(written, at, l.Objects...)
	}
}

// templates reads what a Policy applies: OperatorPolicies and Constraints are judged, and judge the rest, like those
// outside Policies, and so is what a ConfigurationPolicy carries. Opgate does not judge a policy that is in the input as
// well, as in what was read from a cluster.
func (l *loader) templates(p policyDocument) {
	d, policy := p.document, p.policy
	if policy.Spec.Disabled {
		return
	}
	for _, t := range dependency.Read(policy).Templates {
		if _, made := l.written[identity{t.Ref.Kind, t.Ref.Namespace, t.Ref.Name}]; !t.Readable || t.Fault != "" && t.Suspendable ||
			t.Suspendable && made {
			continue
		}
		path := fmt.Sprintf("spec.policy-templates[%d].objectDefinition", t.Index)
		raw, err := applied(policy.Spec.PolicyTemplates[t.Index].ObjectDefinition.Raw, policy)
		if err != nil {
			l.fault(d, []fieldFault{{path: path, text: path + " cannot be read: " + reworded(err)}}, nil)
			continue
		}
		inner := document{Place: d.at(d.tree.line(path, d.Line)), raw: raw, tree: d.tree.within(path), template: true}
		l.value(inner, origin{wrapped: !t.Suspendable, depth: 1})
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
