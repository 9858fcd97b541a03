package olm

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/opgate/opgate/internal/apijson"
	"github.com/opgate/opgate/internal/text"
)

// OperatorCondition is what rules read of operators.coreos.com/v2 OperatorCondition, in which an operator reports its
// state. It has the name of the ClusterServiceVersion that it is about.
type OperatorCondition struct {
	Metadata struct {
		Name       string `json:"name"`
		Namespace  string `json:"namespace"`
		Generation int64  `json:"generation"`
	} `json:"metadata"`
	Spec struct {
		// Conditions are those of the operator, which OLM copies to the status; Overrides are an admin's, and take
		// precedence.
		Conditions conditions `json:"conditions"`
		Overrides  conditions `json:"overrides"`
	} `json:"spec"`
	Status struct {
		Conditions conditions `json:"conditions"`
	} `json:"status"`
}

// conditionUpgradeable is the type of the one condition that OLM supports.
const conditionUpgradeable = "Upgradeable"

// maxConditionMessage bounds what is shown of an operator's message, in bytes.
const maxConditionMessage = 500

// condition is a metav1.Condition as it is stored, whatever its fields hold.
type condition struct {
	Type               string `json:"type"`
	Status             string `json:"status"`
	Message            string `json:"message"`
	ObservedGeneration int64  `json:"observedGeneration"`
}

// conditions has the condition Upgradeable of a list; nil if the list has none.
type conditions struct{ upgradeable *condition }

// UnmarshalJSON takes the first condition of the type, as OLM does.
func (c *conditions) UnmarshalJSON(raw []byte) error {
	all, err := readConditions[condition](raw)
	*c = conditions{}
	if i := slices.IndexFunc(all, func(c condition) bool { return c.Type == conditionUpgradeable }); i >= 0 {
		c.upgradeable = &all[i]
	}
	return err
}

// readConditions reads a list of conditions. One that is too long is an error: one without a name takes sixteen times its
// size.
func readConditions[T any](raw []byte) (all []T, err error) {
	if n, _ := apijson.Measure(raw); n > maxConditionValues {
		return nil, fmt.Errorf("the conditions hold %d values, at most %d are read", n, maxConditionValues)
	}
	err = apijson.Unmarshal(raw, &all)
	return all, err
}

// NotUpgradeable returns why OLM would not replace the operator now, "" if it would. OLM reads its own copy of the
// operator's conditions; before the first copy exists what the operator wrote counts, since OLM is about to copy it.
func (c *OperatorCondition) NotUpgradeable() string {
	override, observed, written := c.Spec.Overrides.upgradeable, c.Status.Conditions.upgradeable,
		c.Spec.Conditions.upgradeable
	switch {
	case override != nil && override.Status == "True":
		return ""
	case override != nil:
		return "spec.overrides sets " + conditionUpgradeable + " to " + override.describe()
	case observed != nil && observed.ObservedGeneration != c.Metadata.Generation:
		if written == nil {
			return "status.conditions has an outdated " + conditionUpgradeable + " that spec.conditions does not have"
		}
		return "OLM has not observed the present " + conditionUpgradeable + " in spec.conditions yet, " +
			written.describe()
	case observed == nil:
		observed = written
	}
	if observed != nil && observed.Status == "False" {
		return conditionUpgradeable + " is " + observed.describe()
	}
	return ""
}

// describe returns the status, with the message if there is one.
func (c *condition) describe() string {
	if c.Message == "" {
		return text.Name(c.Status)
	}
	return text.Name(c.Status) + ", " + strconv.Quote(text.Truncate(c.Message, maxConditionMessage))
}
