package constraint

import (
	"maps"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/facts"
)

// Attributes is a set of properties of a bundle and its environment that rules may read.
type Attributes uint32

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
	// CatalogState is what the CatalogSource itself says; it is unknown for one that does not exist.
	CatalogState
	// Deprecation is what the catalog says is deprecated.
	Deprecation
	// ChangeSet is what the bundle changes of what is installed.
	ChangeSet
	// CatalogImage is the digest of the image that the pods of the CatalogSource run.
	CatalogImage
	// Writer is the user who writes an object that is not a bundle.
	Writer
	// Config is spec.config of the Subscription.
	Config
	// SourceFields are the fields of a catalog that a CatalogSource has and a ClusterCatalog has not.
	SourceFields
	// SourceImage is the image of a catalog, with its registry and its digest.
	SourceImage
	// Release is that of the version, in the properties or else in the ClusterServiceVersion.
	Release
)

// CatalogFacts are the facts about catalogs that policies are judged by.
const CatalogFacts = CatalogState | CatalogImage

// InCSV are the attributes that only the ClusterServiceVersion itself contains; Release only if the properties have
// none.
const InCSV = Contents | Annotations | Release

// OfBundle are those of the bundle itself, without its environment.
const OfBundle = CSV | Package | Version | Channel | CatalogSource | Properties | InCSV | Scope | Deprecation |
	ChangeSet | Config

// attributeNames are the names for messages, in the order of the bits.
var attributeNames = [...]string{"CSV name", "package", "version", "channel", "catalog", "properties of the bundle",
	"labels of the namespace", "facts about the cluster", "contents of the ClusterServiceVersion",
	"targets of the OperatorGroup",
	"annotations of the ClusterServiceVersion", "state of the CatalogSource",
	"deprecations in the catalog", "changes of what is installed", "digest of the image that the CatalogSource runs",
	"user who writes", "config of the Subscription", "fields that only a CatalogSource has", "image of the catalog",
	"release"}

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

// The names of the variables. `package` and `namespace` would be the natural names, but are reserved words in CEL.
const (
	varProperties = "properties"
	varPackage    = "packageName"
	varCSV        = "csv"
	varVersion    = "version"
	varRelease    = "release"
	varChannel    = "channel"
	varCatalog    = "catalog"
	varDeprecated = "deprecated"
	varChange     = "change"
	varNamespace  = "namespaceObject"
	varCluster    = "cluster"

	varClusterPermissions = "clusterPermissions"
	varPermissions        = "permissions"
	varWebhooks           = "webhooks"
	varConversionCRDs     = "conversionCRDs"
	varAnnotations        = "annotations"
	varImages             = "images"
	varConfig             = "config"
)

// variable is a variable of rules. One of read, write and of is set.
type variable struct {
	// name may have a dot, which adds a typed field to the map that is named before it.
	name string
	// declared is its type.
	declared *cel.Type
	// attribute is unknown when the variable is.
	attribute Attributes
	// read returns the value for a bundle. It is called once for each bundle, before all rules.
	read func(b *Bundle, facts *facts.Cluster) ref.Val
	// write returns the value for a write. It is called once for each write, before all rules.
	write func(w *Write) ref.Val
	// of returns a value that is shared or expensive, when the first rule reads it.
	of func(a *activation) ref.Val
}

var (
	propertyLists  = cel.ListType(cel.MapType(cel.StringType, cel.AnyType))
	ruleLists      = cel.ListType(cel.MapType(cel.StringType, cel.ListType(cel.StringType)))
	labelledObject = cel.MapType(cel.StringType, cel.MapType(cel.StringType, cel.DynType))
)

// namespaceVariable and clusterVariable are those that the rules of every target have.
var (
	namespaceVariable = variable{name: varNamespace, declared: labelledObject, attribute: NamespaceLabels,
		of: func(a *activation) ref.Val { return a.around.namespace }}
	clusterVariable = variable{name: varCluster, declared: cel.MapType(cel.StringType, cel.DynType),
		attribute: ClusterVersion,
		of:        func(a *activation) ref.Val { return a.around.cluster }}
)

// variables are all variables of rules on bundles, in the order of messages.
var variables = []variable{
	{name: varProperties, declared: propertyLists, attribute: Properties,
		read: func(b *Bundle, _ *facts.Cluster) ref.Val { return properties(b.Properties) }},
	{name: varPackage, declared: cel.StringType, attribute: Package,
		read: func(b *Bundle, _ *facts.Cluster) ref.Val { return seen(b.Package) }},
	{name: varCSV, declared: cel.StringType, attribute: CSV,
		read: func(b *Bundle, _ *facts.Cluster) ref.Val { return seen(b.Name) }},
	{name: varVersion, declared: cel.StringType, attribute: Version,
		read: func(b *Bundle, _ *facts.Cluster) ref.Val { return seen(b.Version) }},
	{name: varRelease, declared: cel.StringType, attribute: Release,
		read: func(b *Bundle, _ *facts.Cluster) ref.Val { return seen(b.Release) }},
	{name: varChannel, declared: cel.StringType, attribute: Channel,
		read: func(b *Bundle, _ *facts.Cluster) ref.Val { return seen(b.Channel) }},
	{name: varCatalog, declared: cel.MapType(cel.StringType, cel.StringType), attribute: CatalogSource,
		read: func(b *Bundle, _ *facts.Cluster) ref.Val {
			return mapOf(
				map[string]any{"name": seen(b.Catalog.Name), "namespace": seen(b.Catalog.Namespace)})
		}},
	{name: "catalog.priority", declared: cel.IntType, attribute: CatalogState,
		read: ofCatalog(func(c *olm.CatalogSource) ref.Val { return types.Int(c.Spec.Priority) })},
	{name: "catalog.image", declared: cel.StringType, attribute: CatalogState,
		read: ofCatalog(func(c *olm.CatalogSource) ref.Val { return seen(c.ServedImage()) })},
	{name: "catalog.healthy", declared: cel.BoolType, attribute: CatalogState,
		read: ofCatalog(func(c *olm.CatalogSource) ref.Val { return types.Bool(c.Healthy()) })},
	{name: "catalog.digest", declared: cel.StringType, attribute: CatalogState | CatalogImage,
		read: func(b *Bundle, facts *facts.Cluster) ref.Val {
			return ofCatalog(func(c *olm.CatalogSource) ref.Val {
				if c.ServedImage() == "" {
					return seen("")
				}
				return seen(facts.Served[b.Catalog])
			})(b, facts)
		}},
	{name: varDeprecated, declared: cel.MapType(cel.StringType, cel.StringType), attribute: Deprecation,
		read: func(b *Bundle, _ *facts.Cluster) ref.Val {
			d := &b.Deprecated
			return mapOf(
				map[string]any{"package": seen(d.Package), "channel": seen(d.Channel),
					"version": seen(d.Version)})
		}},
	{name: varChange, declared: cel.MapType(cel.StringType, cel.ListType(cel.StringType)), attribute: ChangeSet,
		of: func(a *activation) ref.Val { return a.changed() }},
	{name: "change.digest", declared: cel.StringType, attribute: ChangeSet,
		read: func(b *Bundle, _ *facts.Cluster) ref.Val { return seen(b.change().Digest) }},
	{name: "change.from", declared: cel.StringType, attribute: ChangeSet,
		read: func(b *Bundle, _ *facts.Cluster) ref.Val { return seen(b.change().From) }},
	{name: "change.first", declared: cel.BoolType, attribute: ChangeSet,
		read: func(b *Bundle, _ *facts.Cluster) ref.Val { return types.Bool(b.change().From == "") }},
	{name: varClusterPermissions, declared: ruleLists, attribute: Contents | Scope,
		of: func(a *activation) ref.Val { return ruleMaps(a.contents().ClusterPermissions()) }},
	{name: varPermissions, declared: ruleLists, attribute: Contents,
		of: func(a *activation) ref.Val { return ruleMaps(a.contents().Permissions()) }},
	{name: varWebhooks, declared: ruleLists, attribute: Contents,
		of: func(a *activation) ref.Val { return ruleMaps(a.contents().Webhooks()) }},
	{name: varConversionCRDs, declared: cel.ListType(cel.StringType), attribute: Contents,
		of: func(a *activation) ref.Val { return textList(a.contents().ConversionCRDs()) }},
	{name: varAnnotations, declared: cel.MapType(cel.StringType, cel.StringType), attribute: Annotations,
		of: func(a *activation) ref.Val { return annotations(a.contents().Annotations()) }},
	{name: varImages, declared: cel.ListType(cel.MapType(cel.StringType, cel.StringType)), attribute: Contents | Config,
		of: func(a *activation) ref.Val { return a.images() }},
	{name: varConfig, declared: cel.MapType(cel.StringType, cel.ListType(cel.StringType)), attribute: Config,
		of: func(a *activation) ref.Val { return a.config() }},
	namespaceVariable, clusterVariable,
}

// ofCatalog returns the read function of a variable of the bundle's CatalogSource. Without one there is no value, not
// even a zero.
func ofCatalog(read func(c *olm.CatalogSource) ref.Val) func(*Bundle, *facts.Cluster) ref.Val {
	return func(b *Bundle, facts *facts.Cluster) ref.Val {
		c, ok := facts.Catalogs[b.Catalog]
		if !ok {
			return types.NewErr("%s", b.notKnown(CatalogState))
		}
		return read(c)
	}
}

// change returns the change of the bundle; an empty one if it is not known, of which rules read nothing.
func (b *Bundle) change() *Change {
	if b.Change == nil {
		return &Change{}
	}
	return b.Change
}

// notKnown describes unknown attributes of the bundle, or of what surrounds it, in a message.
func (b *Bundle) notKnown(a Attributes) string {
	if a&CatalogState != 0 && b.Catalog != (olm.Catalog{}) {
		return (&Bundle{}).notKnown(a) + " (CatalogSource " + text.Name(b.Catalog.Namespace) + "/" +
			text.Name(b.Catalog.Name) +
			" does not exist or is not known)"
	}
	if a == CatalogImage && b.Catalog != (olm.Catalog{}) {
		return (&Bundle{}).notKnown(a) + " (CatalogSource " + text.Name(b.Catalog.Namespace) + "/" +
			text.Name(b.Catalog.Name) +
			" has no pod that runs, pods with different images, a Service that does not lead to them alone, or a namespace that is not in chart value olm.catalogNamespaces)"
	}
	if a&Deprecation != 0 && b.Catalog != (olm.Catalog{}) && b.Package != "" {
		return (&Bundle{}).notKnown(a) + " (the PackageManifest of package " + text.Name(b.Package) + " in catalog " +
			text.Name(b.Catalog.Namespace) + "/" + text.Name(b.Catalog.Name) + " is not known, or does not have " +
			text.Name(b.Name) + ")"
	}
	names := a.Names()
	if len(names) == 0 {
		return "something that it depends on is not known"
	}
	verb := " are not known"
	if len(names) == 1 && a&(Properties|NamespaceLabels|ClusterVersion|Contents|Scope|Annotations|Deprecation|ChangeSet|
		SourceFields) == 0 {
		verb = " is not known"
	}
	if len(names) > 1 {
		return "the " + strings.Join(names[:len(names)-1], ", the ") + " and the " + names[len(names)-1] + verb
	}
	return "the " + names[0] + verb
}

// unknownOf returns the attributes of a bundle that are not known.
func unknownOf(c *facts.Cluster, b *Bundle) Attributes {
	unknown := b.Unknown & OfBundle
	source, ok := c.Catalogs[b.Catalog]
	if !ok || unknown&CatalogSource != 0 {
		unknown |= CatalogState
	}
	if ok && source.ServedImage() != "" && (c.Served[b.Catalog] == "" || c.Misconnected(b.Catalog) != "") {
		unknown |= CatalogImage
	}
	return unknown
}

// differ returns the attributes for which the facts about the cluster are not the same.
func differ(c, o *facts.Cluster) Attributes {
	var other Attributes
	if c.Version != o.Version || c.OpenShift != o.OpenShift {
		other |= ClusterVersion
	}
	if !maps.EqualFunc(c.Catalogs, o.Catalogs, func(a, b *olm.CatalogSource) bool {
		return a.Spec.Priority == b.Spec.Priority && a.ServedImage() == b.ServedImage() && a.Healthy() == b.Healthy()
	}) {
		other |= CatalogState
	}
	if !maps.Equal(c.Served, o.Served) || !maps.Equal(c.Services, o.Services) || !maps.Equal(c.Histories, o.Histories) {
		other |= CatalogImage
	}
	return other
}
