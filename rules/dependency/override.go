package dependency

import (
	"errors"
	"strings"

	policyv1 "github.com/opgate/opgate/api/policy/v1"
)

// Override sets the fields of a template's object that its Policy decides: the namespace, unless the kind is known to
// be cluster-scoped, and spec.remediationAction. Constraint and the kinds of Gatekeeper have no such field.
func Override(object map[string]any, policy *policyv1.Policy) error {
	meta, ok := object["metadata"].(map[string]any)
	if !ok {
		return errors.New("objectDefinition has no metadata")
	}
	ref := refOf(object)
	if ref.clusterScoped() {
		delete(meta, "namespace")
		return nil
	}
	meta["namespace"] = policy.Namespace
	spec, ok := object["spec"].(map[string]any)
	if !ok {
		return nil // depends on the scope of its kind
	}
	const field = "remediationAction"
	action := string(policy.Spec.RemediationAction)
	if strings.EqualFold(textOf(spec, field), "InformOnly") {
		action = string(policyv1.Inform) // inform is kept, whatever the Policy's action
	}
	if action != "" {
		spec[field] = action
	}
	return nil
}
