package dependency

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"

	policyv1 "github.com/opgate/opgate/api/policy/v1"
)

// anyName is in place of the name in a reference to every object of a kind in a namespace.
const anyName = "*"

// Unreadable returns what a Policy that does not decode may suspend (threat G5): the objects of its templates and, if
// not all of these can be read, every OperatorPolicy of its namespace. A Constraint of a template that cannot be read
// is in force as it is.
func Unreadable(namespace, name string, raw []byte) *Policy {
	var parts struct {
		Spec struct {
			Templates []struct {
				Definition runtime.RawExtension `json:"objectDefinition"`
			} `json:"policy-templates"`
		} `json:"spec"`
	}
	written := &policyv1.Policy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &parts)
	for _, t := range parts.Spec.Templates {
		template := &policyv1.PolicyTemplate{ObjectDefinition: t.Definition}
		written.Spec.PolicyTemplates = append(written.Spec.PolicyTemplates, template)
	}
	p := Read(written)
	p.Unreadable, p.HidesTemplates = true, err != nil || len(p.Templates) == 0
	for i := range p.Templates {
		t := &p.Templates[i]
		p.HidesTemplates = p.HidesTemplates || !t.Readable
		if t.Suspendable {
			t.Met = satisfied // which no status reports
		}
	}
	return p
}

// cannotBeRead is why an unreadable Policy suspends what it does.
func (p *Policy) cannotBeRead() string { return p.Ref().String() + " cannot be read" }

// any returns the reference to every object of the kind in the namespace; the zero value for another kind than
// OperatorPolicy.
func (r Ref) any() Ref {
	if !strings.HasSuffix(r.Kind, "OperatorPolicy") {
		return Ref{}
	}
	return OperatorPolicyRef(r.Namespace, anyName)
}
