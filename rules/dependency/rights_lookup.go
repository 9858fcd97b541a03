package dependency

import (
	"fmt"
	"strings"

	policyv1 "github.com/opgate/opgate/api/policy/v1"
	"github.com/opgate/opgate/rules/lookup"
	"github.com/opgate/opgate/rules/verdict"
)

// LookupNeed returns the need of a lookup. It copies what that has, a part of the text of the template, which is not
// kept while rights are asked about.
func LookupNeed(l lookup.Lookup, rule verdict.RuleID, field string) Need {
	right := Right{Verb: "get", Group: strings.Clone(l.Group), Resource: strings.Clone(l.Resource()),
		Namespace: strings.Clone(l.Namespace), Name: strings.Clone(l.Name)}
	object := l.Kind
	switch {
	case l.Kind == lookup.Any:
		object = "objects of a computed kind"
	case l.Name == "":
		object = "any " + l.Kind
	case l.Namespace == "":
		object += " " + l.Name
	default:
		object += " " + l.Namespace + "/" + l.Name
	}
	return Need{Rights: []Right{right}, rule: rule, field: field, object: object, looksUp: true}
}

// templateLookups returns the needs for the lookups of an OperatorPolicy that a template of a Policy makes: Opgate
// writes it, so the right is one of the author of the Policy.
func templateLookups(policy *policyv1.Policy, t *Template) []Need {
	if t.Ref.Group != policyv1.Group || t.Ref.Kind != verdict.KindOperatorPolicy {
		return nil
	}
	var needs []Need
	for _, l := range lookup.Of(policy.Spec.PolicyTemplates[t.Index].ObjectDefinition) {
		needs = append(needs, LookupNeed(l, RulePolicyEscalation, fmt.Sprintf("spec.policy-templates[%d]", t.Index)))
	}
	return needs
}
