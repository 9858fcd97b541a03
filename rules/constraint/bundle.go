// Package constraint judges bundles by the cluster's constraints (the Constraint objects of
// constraints.operators.coreos.com) and by the olm.constraint properties that bundles bring themselves. Like the rest
// of rules it is pure: it takes values, returns findings and makes no calls.
//
// There are two questions. A cluster constraint must be satisfied by every incoming bundle: Set.Judge. A bundle's own
// constraint must be satisfied by some bundle, itself included, or by the cluster: Set.Own, which follows OLM's
// resolver.
//
// Rules are CEL by possibly careless or hostile authors. Define compiles them and refuses those whose estimated cost is
// too high; judging counts what they cost on each bundle. Nothing is compiled while judging.
package constraint

import (
	"fmt"
	"strings"

	"github.com/blang/semver/v4"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
)

// Bundle is what is known of a bundle. It must not be changed once it has been judged.
type Bundle struct {
	// Bundle has no Channel for a dependency that a plan installs without a Subscription.
	olm.Bundle
	// Deprecated has the catalog's messages.
	Deprecated olm.Deprecations
	// Change is what the bundle changes of what is installed; nil if that is not known.
	Change *Change
	// Config is spec.config of the Subscription to the package.
	Config olm.SubscriptionConfig
	// Manifest is what the ClusterServiceVersion and the objects installed with it request; nil if nothing. Its lists are
	// read once, when the first rule uses one of them. An error fails the rule; it says why the list cannot be judged.
	Manifest *olm.Demands
	// Unknown are the attributes that are not known; rules that depend on them are Undecided.
	Unknown Attributes
}

// Size returns the bytes of the properties, by which the cost of most rules grows.
func (b *Bundle) Size() (bytes int) {
	for _, p := range b.Properties {
		bytes += len(p.Type) + len(p.Raw)
	}
	return bytes
}

// Change is what a bundle changes of what is installed.
type Change struct {
	// Digest identifies the change in all clusters. From is the ClusterServiceVersion that is replaced, empty for a
	// first installation.
	Digest, From string
	// Lists are the differences in words, by class and by risk.
	Lists map[string][]string
}

// ChangeLists are the keys of Lists, as rules read them.
var ChangeLists = []string{"permissions", "webhooks", "breakingCRDs", "podSecurity", "images", "scope", "crds",
	"requirements", "risky"}

// Namespace is the namespace in which a bundle is installed or would be.
type Namespace struct {
	Name   string
	Labels map[string]string
	// Unknown is set if the labels are not known.
	Unknown bool
}

// MaxOpenShift returns the highest OpenShift version that the bundle supports, as MAJOR.MINOR; empty if it specifies
// none. The problem is why it cannot be parsed. It is as tolerant as OLM's maxOpenShiftVersion
// (operator-lifecycle-manager pkg/controller/operators/openshift/helpers.go): it accepts a number or additional quotes,
// but not two such properties or a patch version.
func (b *Bundle) MaxOpenShift() (version string, problem string) {
	found := false
	for _, p := range b.Properties {
		if p.Type != olm.TypeMaxOpenShift {
			continue
		}
		if found {
			return "", olm.TypeMaxOpenShift + " is set more than once; one is accepted"
		}
		found = true
		version, problem = minorVersion(strings.Trim(string(p.Raw), `"`))
	}
	if problem != "" {
		return "", fmt.Sprintf("%s %s", olm.TypeMaxOpenShift, problem)
	}
	return version, ""
}

// minorVersion parses MAJOR.MINOR.
func minorVersion(written string) (version string, problem string) {
	if written == "" {
		return "", "is empty; MAJOR.MINOR such as 4.19 is required"
	}
	v, err := semver.ParseTolerant(written)
	if err != nil {
		return "", fmt.Sprintf("%q is not a version; MAJOR.MINOR such as 4.19 is required",
			text.Truncate(written, valueShown))
	}
	if !v.EQ(semver.Version{Major: v.Major, Minor: v.Minor}) {
		return "", fmt.Sprintf("%q is more than MAJOR.MINOR such as 4.19", text.Truncate(written, valueShown))
	}
	return fmt.Sprintf("%d.%d", v.Major, v.Minor), ""
}
