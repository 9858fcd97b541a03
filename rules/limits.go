package rules

import "github.com/opgate/opgate/rules/constraint"

// Limits of what is read of OLM's objects, which may be as large as etcd takes (1.5 MiB) and are written by tenants, or come from any
// catalog. A list of empty objects takes a hundred times its size once it is decoded, so it is counted before. What is beyond a limit
// is not read, and holds whatever depends on it (threat G18). Those of bundle properties are in package constraint, and that of a
// whole review is in package admission. docs/performance.md has all of them.
const (
	// maxListValues and maxListBytes bound each of the lists clusterPermissions, permissions and webhookdefinitions of a
	// ClusterServiceVersion, and an object of RBAC that a plan brings. The largest operators in use have some 700 rules, of twenty
	// values and 150 bytes each.
	maxListValues = constraint.MaxValues
	maxListBytes  = 256 << 10
	// maxPlanValues bounds a whole InstallPlan, in which a manifest is one value. One step has about 12.
	maxPlanValues = 131_072
	// maxPlanEntries bounds the names, steps and bundle lookups of a plan together. The largest plans in use have some 400.
	maxPlanEntries = 16_384
	// maxGroupValues bounds the names in an OperatorGroup, those of its status included.
	maxGroupValues = 65_536
)
