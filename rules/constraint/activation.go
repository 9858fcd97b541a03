package constraint

import (
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"

	"github.com/opgate/opgate/olm"
)

// The variables of rules. `package` and `namespace` would be the natural names, but are reserved words in CEL.
const (
	varProperties = "properties"
	varPackage    = "packageName"
	varCSV        = "csv"
	varVersion    = "version"
	varChannel    = "channel"
	varCatalog    = "catalog"
	varNamespace  = "namespaceObject"
	varCluster    = "cluster"

	varClusterPermissions = "clusterPermissions"
	varPermissions        = "permissions"
	varWebhooks           = "webhooks"
	varConversionCRDs     = "conversionCRDs"
	varAnnotations        = "annotations"
)

// variableAttributes maps a variable to the attributes that are unknown when it is.
var variableAttributes = map[string]Attributes{
	varProperties: Properties, varPackage: Package, varCSV: CSV, varVersion: Version, varChannel: Channel,
	varCatalog: CatalogSource, varNamespace: NamespaceLabels, varCluster: ClusterVersion,
	varClusterPermissions: Contents | Scope, varPermissions: Contents, varWebhooks: Contents,
	varConversionCRDs: Contents, varAnnotations: Annotations,
}

// activation holds the variables for one bundle, namespace and cluster. It is created once per bundle, not per rule.
type activation struct {
	bundle                     *Bundle
	properties                 ref.Val
	catalog                    ref.Val
	csv, pkg, version, channel ref.Val
	around                     *surroundings
	shape                      shape
	unknown                    Attributes
	patterns                   []*interpreter.AttributePattern
	// manifest is nil until the first rule reads the manifest of the ClusterServiceVersion.
	manifest *manifestValues
	// annotations is nil until the first rule reads them.
	annotations *annotationValues
}

// manifestValues are the lists of a Manifest as CEL values.
type manifestValues struct {
	clusterPermissions, permissions, webhooks, conversionCRDs ref.Val
	// shape is the shape of the activation including these lists.
	shape shape
}

// annotationValues are the annotations of a Manifest as a CEL value. They have a shape of their own: rules that do not read them are not
// charged for their texts.
type annotationValues struct {
	values ref.Val
	shape  shape
}

func newActivation(b *Bundle, around *surroundings) *activation {
	var m measure
	a := &activation{
		csv: m.seen(b.CSV), pkg: m.seen(b.Package), version: m.seen(b.Version), channel: m.seen(b.Channel),
		bundle: b, around: around, properties: m.properties(b.Properties),
		catalog:  types.NewStringInterfaceMap(types.DefaultTypeAdapter, map[string]any{"name": m.seen(b.Catalog.Name), "namespace": m.seen(b.Catalog.Namespace)}),
		unknown:  b.Unknown | around.unknownAttributes,
		patterns: around.unknown,
	}
	a.shape = m.shape().most(around.shape)
	a.shape.properties = power(len(b.Properties))
	if b.Unknown&bundleAttributes != 0 {
		a.patterns = a.patterns[:len(a.patterns):len(a.patterns)]
		for name, attribute := range variableAttributes {
			if b.Unknown&bundleAttributes&attribute != 0 {
				a.patterns = append(a.patterns, interpreter.NewAttributePattern(name))
			}
		}
	}
	return a
}

// ResolveName returns a variable's value.
func (a *activation) ResolveName(name string) (any, bool) {
	switch name {
	case varProperties:
		return a.properties, true
	case varPackage:
		return a.pkg, true
	case varCSV:
		return a.csv, true
	case varVersion:
		return a.version, true
	case varChannel:
		return a.channel, true
	case varCatalog:
		return a.catalog, true
	case varNamespace:
		return a.around.namespace, true
	case varCluster:
		return a.around.cluster, true
	case varClusterPermissions:
		return a.lists().clusterPermissions, true
	case varPermissions:
		return a.lists().permissions, true
	case varWebhooks:
		return a.lists().webhooks, true
	case varConversionCRDs:
		return a.lists().conversionCRDs, true
	case varAnnotations:
		return a.notes().values, true
	}
	return nil, false
}

// lists reads the manifest of the ClusterServiceVersion on first use.
func (a *activation) lists() *manifestValues {
	if a.manifest == nil {
		var m measure
		from := a.contents()
		a.manifest = &manifestValues{
			clusterPermissions: m.ruleLists(from.ClusterPermissions()),
			permissions:        m.ruleLists(from.Permissions()),
			webhooks:           m.ruleLists(from.Webhooks()),
			conversionCRDs:     m.texts(from.ConversionCRDs()),
		}
		a.manifest.shape = a.shape.most(m.shape())
	}
	return a.manifest
}

// notes reads the annotations of the ClusterServiceVersion on first use.
func (a *activation) notes() *annotationValues {
	if a.annotations == nil {
		var m measure
		a.annotations = &annotationValues{values: m.annotations(a.contents().Annotations())}
		a.annotations.shape = a.shape.most(m.shape())
	}
	return a.annotations
}

func (a *activation) contents() Manifest {
	if a.bundle.Manifest == nil {
		return &olm.Demands{Spec: &olm.CSVSpec{}}
	}
	return a.bundle.Manifest
}

// shapeFor returns the shape of the inputs that an expression uses.
func (a *activation) shapeFor(uses Attributes) shape {
	shape := a.shape
	if uses&Contents != 0 {
		shape = shape.most(a.lists().shape)
	}
	if uses&Annotations != 0 {
		shape = shape.most(a.notes().shape)
	}
	return shape
}

// Parent returns nil: there is one level of names.
func (a *activation) Parent() interpreter.Activation { return nil }

// notKnown describes unknown attributes in a message.
func notKnown(a Attributes) string {
	names := a.Names()
	if len(names) == 0 {
		return "something that it depends on is not known"
	}
	verb := " are not known"
	if len(names) == 1 && a&(Properties|NamespaceLabels|ClusterVersion|Contents|Scope|Annotations) == 0 {
		verb = " is not known"
	}
	if len(names) > 1 {
		return "the " + strings.Join(names[:len(names)-1], ", the ") + " and the " + names[len(names)-1] + verb
	}
	return "the " + names[0] + verb
}
