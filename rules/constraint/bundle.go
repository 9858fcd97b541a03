package constraint

import (
	"crypto/sha256"

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
	// Manifest is what the ClusterServiceVersion requests; nil if nothing.
	Manifest Manifest
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

// Manifest is what a ClusterServiceVersion and the objects installed with it request. Its lists are read once, when the
// first rule uses one of them. An error fails the rule; it says why the list cannot be judged.
type Manifest interface {
	// Digest differs if any list differs.
	Digest() [sha256.Size]byte
	// ClusterPermissions are the cluster-wide RBAC rules and Permissions the namespaced ones, each with lists
	// apiGroups, resources, verbs, resourceNames and nonResourceURLs.
	ClusterPermissions() ([]map[string][]string, error)
	Permissions() ([]map[string][]string, error)
	// Webhooks are the rules of webhooks, each with lists apiGroups, apiVersions, resources, operations and type; all
	// but type are empty for a webhook without rules.
	Webhooks() ([]map[string][]string, error)
	// ConversionCRDs are the CustomResourceDefinitions whose objects the webhooks convert.
	ConversionCRDs() ([]string, error)
	// Images are those that the ClusterServiceVersion names.
	Images() ([]olm.Image, error)
	// Annotations are nil where the text is too long to be read.
	Annotations() (map[string]*string, error)
}

// Namespace is the namespace in which a bundle is installed or would be.
type Namespace struct {
	Name   string
	Labels map[string]string
	// Unknown is set if the labels are not known.
	Unknown bool
}
