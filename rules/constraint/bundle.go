package constraint

import (
	"crypto/sha256"

	"github.com/opgate/opgate/olm"
)

// Attributes is a set of properties of a bundle and its environment that rules may read.
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
	// Contents is what the ClusterServiceVersion itself requests: permissions and webhooks.
	Contents
	// Scope is whether the OperatorGroup makes namespaced permissions cluster-wide.
	Scope
	// Annotations are those of the ClusterServiceVersion.
	Annotations
)

// InCSV are the attributes that only the ClusterServiceVersion itself contains.
const InCSV = Contents | Annotations

// bundleAttributes are those of the bundle itself, without its environment.
const bundleAttributes = CSV | Package | Version | Channel | CatalogSource | Properties | InCSV | Scope

// attributeNames are the names for messages, in the order of the bits.
var attributeNames = [...]string{"CSV name", "package", "version", "channel", "catalog", "properties of the bundle", "labels of the namespace", "facts about the cluster",
	"contents of the ClusterServiceVersion", "targets of the OperatorGroup", "annotations of the ClusterServiceVersion"}

// Names returns the names for messages: "package", "properties of the bundle", "labels of the namespace".
func (a Attributes) Names() []string {
	var names []string
	for i, name := range attributeNames {
		if a&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// Bundle is what is known of a bundle. It must not be changed once it has been judged.
type Bundle struct {
	// CSV is the name of the ClusterServiceVersion; Package and Version are those of property olm.package. Channel is empty for a
	// dependency that a plan installs without a Subscription.
	CSV, Package, Version, Channel string
	Catalog                        olm.Catalog
	Properties                     []olm.Property
	// Manifest is what the ClusterServiceVersion requests; nil if nothing.
	Manifest Manifest
	// Unknown are the attributes that are not known; rules that depend on them are Undecided.
	Unknown Attributes
}

// Manifest is what a ClusterServiceVersion and the objects installed with it request. Its lists are read once, when the first rule uses one
// of them. An error fails the rule; it says why the list cannot be judged.
type Manifest interface {
	// Digest differs if any list differs.
	Digest() [sha256.Size]byte
	// ClusterPermissions are the cluster-wide RBAC rules and Permissions the namespaced ones, each with lists apiGroups, resources, verbs,
	// resourceNames and nonResourceURLs.
	ClusterPermissions() ([]map[string][]string, error)
	Permissions() ([]map[string][]string, error)
	// Webhooks are the rules of webhooks, each with lists apiGroups, apiVersions, resources, operations and type; all but type are empty for
	// a webhook without rules.
	Webhooks() ([]map[string][]string, error)
	// ConversionCRDs are the CustomResourceDefinitions whose objects the webhooks convert.
	ConversionCRDs() ([]string, error)
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

// Cluster is what is known of the cluster.
type Cluster struct {
	// Version is the Kubernetes version, such as "1.36.3"; empty if not known yet.
	Version string
	// OpenShift is the OpenShift version, such as "4.19.3"; empty on another distribution, or if not known.
	OpenShift string
	// Properties are those of all Constraints and the automatic ones. NewSet sets them.
	Properties []olm.Property
}
