package olm

import (
	"fmt"
	"strconv"

	operatorsv2 "github.com/operator-framework/api/pkg/operators/v2"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/opgate/opgate/internal/apijson"
	"github.com/opgate/opgate/internal/text"
)

// maxConditionMessage bounds what is shown of an operator's message, in bytes.
const maxConditionMessage = 500

// DecodeOperatorCondition reads the JSON of an OperatorCondition; one with more values than maxConditionValues is an
// error.
func DecodeOperatorCondition(raw []byte) (*operatorsv2.OperatorCondition, error) {
	if n, _ := apijson.Measure(raw); n > maxConditionValues {
		return nil, fmt.Errorf("the OperatorCondition holds %d values, at most %d are read", n, maxConditionValues)
	}
	return Decode[operatorsv2.OperatorCondition](raw)
}

// NotUpgradeable returns why OLM would not replace the operator of an OperatorCondition now, "" if it would. OLM reads
// its own copy of the operator's conditions; before the first copy exists what the operator wrote counts, since OLM is
// about to copy it.
func NotUpgradeable(c *operatorsv2.OperatorCondition) string {
	const upgradeable = operatorsv2.Upgradeable
	override, observed, written := meta.FindStatusCondition(c.Spec.Overrides, upgradeable),
		meta.FindStatusCondition(c.Status.Conditions, upgradeable), meta.FindStatusCondition(c.Spec.Conditions, upgradeable)
	switch {
	case override != nil && override.Status == metav1.ConditionTrue:
		return ""
	case override != nil:
		return "spec.overrides sets " + upgradeable + " to " + describe(override)
	case observed != nil && observed.ObservedGeneration != c.Generation:
		if written == nil {
			return "status.conditions has an outdated " + upgradeable + " that spec.conditions does not have"
		}
		return "OLM has not observed the present " + upgradeable + " in spec.conditions yet, " + describe(written)
	case observed == nil:
		observed = written
	}
	if observed != nil && observed.Status == metav1.ConditionFalse {
		return upgradeable + " is " + describe(observed)
	}
	return ""
}

// describe returns the status, with the message if there is one.
func describe(c *metav1.Condition) string {
	status := text.Name(string(c.Status))
	if c.Message == "" {
		return status
	}
	return status + ", " + strconv.Quote(text.Truncate(c.Message, maxConditionMessage))
}
