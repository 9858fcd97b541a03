package dependency

import (
	"slices"

	"github.com/opgate/opgate/rules/verdict"
)

var (
	policyRules = []verdict.Rule{
		policyField, policyDependencyConflict, policyDependencyDuplicate, policyDependencyCycle,
		policyDependencyNamespace, policyEscalation, policyDependencyAccess, policyTemplate,
	}
	policySetRules = []verdict.Rule{policySetDependencyCycle}
)

// Rules returns the rules on Policies and PolicySets, in reading order. The caller may keep the slice.
func Rules() []verdict.Rule { return slices.Concat(policyRules, policySetRules) }
