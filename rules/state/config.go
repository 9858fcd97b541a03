package state

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/operatorpolicy"
)

// newPolicyConfig reads spec.subscription.config of a policy. Template text that is not resolved is a fault: what the
// config will be is not known.
func newPolicyConfig(op *policyv1beta2.OperatorPolicy) (c olm.SubscriptionConfig) {
	written := op.Spec.Subscription.Config
	switch {
	case written == nil || len(written.Raw) == 0:
	case operatorpolicy.TemplatesEnabled(op) &&
		operatorpolicy.HasTemplate(map[string]*apiextensionsv1.JSON{"config": written}):
		c.Fault = "it holds template text that has not been resolved"
	default:
		if err := c.UnmarshalJSON(written.Raw); err != nil {
			c.Fault = err.Error()
		}
	}
	return c
}
