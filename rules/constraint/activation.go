package constraint

import (
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
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
)

// variableAttributes maps a variable to the attributes that are unknown when it is.
var variableAttributes = map[string]Attributes{
	varProperties: Properties, varPackage: Package, varCSV: CSV, varVersion: Version, varChannel: Channel,
	varCatalog: CatalogSource, varNamespace: NamespaceLabels, varCluster: ClusterVersion,
	varClusterPermissions: Contents | Scope, varPermissions: Contents, varWebhooks: Contents,
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
}

// manifestValues are the lists of a Manifest as CEL values.
type manifestValues struct {
	clusterPermissions, permissions, webhooks ref.Val
	// shape is the shape of the activation including these lists.
	shape shape
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
	}
	return nil, false
}

// lists reads the manifest of the ClusterServiceVersion on first use.
func (a *activation) lists() *manifestValues {
	if a.manifest == nil {
		var m measure
		a.manifest = &manifestValues{}
		none := func() ([]map[string][]string, error) { return nil, nil }
		of := struct {
			clusterPermissions, permissions, webhooks func() ([]map[string][]string, error)
		}{none, none, none}
		if from := a.bundle.Manifest; from != nil {
			of.clusterPermissions, of.permissions, of.webhooks = from.ClusterPermissions, from.Permissions, from.Webhooks
		}
		a.manifest.clusterPermissions = m.ruleLists(of.clusterPermissions())
		a.manifest.permissions = m.ruleLists(of.permissions())
		a.manifest.webhooks = m.ruleLists(of.webhooks())
		a.manifest.shape = a.shape.most(m.shape())
	}
	return a.manifest
}

// shapeFor returns the shape of the inputs that an expression uses.
func (a *activation) shapeFor(uses Attributes) shape {
	if uses&Contents != 0 {
		return a.lists().shape
	}
	return a.shape
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
	if len(names) == 1 && a&(Properties|NamespaceLabels|ClusterVersion|Contents|Scope) == 0 {
		verb = " is not known"
	}
	if len(names) > 1 {
		return "the " + strings.Join(names[:len(names)-1], ", the ") + " and the " + names[len(names)-1] + verb
	}
	return "the " + names[0] + verb
}
