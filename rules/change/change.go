// Package change computes what an InstallPlan changes beyond what is installed: the rights, webhooks, definitions,
// images and settings that a new version of an operator brings along. It is pure: contents and installed objects go in,
// a Set comes out, and the same contents give the same digest in every cluster.
package change

import "crypto/sha256"

// Class is the kind of a Difference. The reviewable ones are the fields of spec.consent of an OperatorPolicy.
type Class string

// The classes, in the order in which a diff shows them.
const (
	// Permissions are rules of RBAC that nothing installed covers.
	Permissions Class = "permissions"
	// Webhooks are admission and conversion webhooks that are new, or that match more than before.
	Webhooks Class = "webhooks"
	// BreakingCRDs are changes of CustomResourceDefinitions that existing objects or clients may not survive.
	BreakingCRDs Class = "breakingCRDs"
	// PodSecurity are settings of pods that reach the node: host namespaces, host paths, privileges.
	PodSecurity Class = "podSecurity"
	// Images are images from a registry that nothing installed comes from.
	Images Class = "images"
	// Scope are new objects of cluster-scoped kinds, and changed install modes.
	Scope Class = "scope"
	// Definitions are new CustomResourceDefinitions and versions. Never held.
	Definitions Class = "crds"
	// Requirements are packages, APIs and versions of Kubernetes that are required now, and deprecations. Never held.
	Requirements Class = "requirements"
)

// Reviewable are the classes that a policy can hold, in the order of the constants.
var Reviewable = []Class{Permissions, Webhooks, BreakingCRDs, PodSecurity, Images, Scope}

// Risk orders differences of a class.
type Risk int

// The risks.
const (
	// Notable is every difference that is not Risky.
	Notable Risk = iota
	// Risky grants control of the cluster or a node: wildcards, escalate, bind, impersonate, secrets, nodes, privileged
	// pods, webhooks on all kinds.
	Risky
)

// Difference is one difference, in words without anything that differs between clusters.
type Difference struct {
	Class Class `json:"class"`
	Risk  Risk  `json:"risk"`
	// Text is one line, such as "cluster-wide: get, list on secrets (core)".
	Text string `json:"text"`
}

// Set is what one ClusterServiceVersion of a plan changes.
type Set struct {
	// CSV, Package and Version are those that the plan brings. Channel and Catalog are where it comes from.
	CSV, Package, Version string
	// Release is that of the version; empty if it has none.
	Release          string
	Channel, Catalog string
	// From, FromVersion and FromRelease are what it replaces; empty for a first installation, for which everything is a
	// difference.
	From, FromVersion, FromRelease string
	// Differences are sorted: risky ones first, then by class and text.
	Differences []Difference
	// Notes are what the reader of a diff must know, such as that the installed operator has all rights already.
	Notes []string
	// Fault is why the contents could not be read; empty if they could. Then Differences say nothing.
	Fault string
	// Spec is the digest of the spec of the ClusterServiceVersion, as olm.CSVSpec.ContentsDigest computes it.
	Spec [sha256.Size]byte
	// Contents is a digest of all that the bundle writes, except for what differs between clusters.
	Contents [sha256.Size]byte
}
