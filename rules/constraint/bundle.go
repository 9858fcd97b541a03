package constraint

import (
	"crypto/sha256"

	"github.com/opgate/opgate/olm"
)

// Attributes is a set of things that rules may ask of a bundle and its surroundings.
type Attributes uint16

// The attributes. CatalogSource is the pair of a catalog's namespace and name.
const (
	CSV Attributes = 1 << iota
	Package
	Version
	Channel
	CatalogSource
	Properties
	NamespaceLabels
	ClusterVersion
	// Contents is what the ClusterServiceVersion itself says: rights, and webhooks.
	Contents
)

// bundleAttributes are those of a bundle itself, without what surrounds it.
const bundleAttributes = CSV | Package | Version | Channel | CatalogSource | Properties | Contents

// attributeNames are in the order of the bits, for people.
var attributeNames = [...]string{"CSV name", "package", "version", "channel", "catalog", "properties of the bundle", "labels of the namespace", "facts about the cluster",
	"contents of the ClusterServiceVersion"}

// Names lists the attributes for people: "package", "properties of the bundle", "labels of the namespace".
func (a Attributes) Names() []string {
	var names []string
	for i, name := range attributeNames {
		if a&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// Bundle is what is known of a bundle. It must not be changed once it was judged.
type Bundle struct {
	// CSV, Package and Version are the name of the ClusterServiceVersion, the package and the version as it
	// stands in olm.package. Channel is empty for what a plan brings along without a Subscription.
	CSV, Package, Version, Channel string
	Catalog                        olm.Catalog
	Properties                     []olm.Property
	// Manifest is what the ClusterServiceVersion asks for; nil is nothing.
	Manifest Manifest
	// Unknown are the attributes about which nothing is known; what depends on them cannot be decided.
	Unknown Attributes
}

// Manifest is what a ClusterServiceVersion, and what is installed with it, asks for. Its lists are read when the first rule
// looks at one of them, once for all rules. An error is what such a rule fails with; it says why the list cannot be judged.
type Manifest interface {
	// Digest differs where a list does.
	Digest() [sha256.Size]byte
	// ClusterPermissions are the rules of RBAC for the whole cluster and Permissions those for namespaces, each with lists
	// apiGroups, resources, verbs, resourceNames and nonResourceURLs.
	ClusterPermissions() ([]map[string][]string, error)
	Permissions() ([]map[string][]string, error)
	// Webhooks are the rules of webhooks, each with lists apiGroups, apiVersions, resources, operations and type.
	Webhooks() ([]map[string][]string, error)
}

// Namespace is where a bundle is, or is to be, installed.
type Namespace struct {
	Name   string
	Labels map[string]string
	// Unknown says that the labels are not known.
	Unknown bool
}

// Cluster is what is known of the cluster as a whole.
type Cluster struct {
	// Version is that of Kubernetes, such as "1.36.3"; empty while it is not known.
	Version string
	// OpenShift is that of OpenShift, such as "4.19.3"; empty where it is another distribution, or not known.
	OpenShift string
	// Properties are those of all Constraints and the automatic ones. NewSet fills them in.
	Properties []olm.Property
}
