package olm

// Limits of what is read of OLM's objects, which may be as large as etcd takes (1.5 MiB) and are written by tenants, or come from any
// catalog. A list of empty objects takes a hundred times its size once it is decoded, so it is counted before. What is beyond a limit
// is not read, and holds whatever depends on it (threat G18). The limit of a whole review is in
// package admission. docs/performance.md lists all of them.
const (
	// MaxValues bounds the properties of a bundle as one text of JSON: elements of lists and members of objects, in all its depth.
	// The largest operators in use have some 200 kinds.
	MaxValues = 32_768
	// MaxProperties bounds the number of properties of one bundle.
	MaxProperties = 4096
	// maxListValues and maxListBytes bound each of the lists clusterPermissions, permissions and webhookdefinitions of a
	// ClusterServiceVersion, and an object of RBAC that a plan brings. The largest operators in use have some 700 rules, of twenty
	// values and 150 bytes each.
	maxListValues = MaxValues
	maxListBytes  = 256 << 10
	// maxPlanValues bounds a whole InstallPlan, in which a manifest is one value. One step has about 12.
	maxPlanValues = 131_072
	// MaxPlanEntries bounds the names, steps and bundle lookups of a plan together. The largest plans in use have some 400.
	MaxPlanEntries = 16_384
	// maxGroupValues bounds the names in an OperatorGroup, those of its status included.
	maxGroupValues = 65_536
)
