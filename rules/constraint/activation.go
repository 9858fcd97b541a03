package constraint

import (
	"slices"

	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
)

// activation holds the variables for one bundle, namespace and cluster. It is created once per bundle, not per rule.
type activation struct {
	bundle *Bundle
	around *surroundings
	// values are those of the variables with a read function, by their position in variables.
	values   []ref.Val
	shape    shape
	unknown  Attributes
	patterns []*interpreter.AttributePattern
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
	missing := around.facts.unknownOf(b)
	a := &activation{bundle: b, around: around, values: make([]ref.Val, len(variables)), unknown: missing | around.unknownAttributes,
		patterns: slices.Clip(around.unknown)}
	var m measure
	for i := range variables {
		v := &variables[i]
		if v.read != nil {
			a.values[i] = v.read(&m, b, around.facts)
		}
		if missing&v.attribute != 0 {
			a.patterns = append(a.patterns, interpreter.NewAttributePattern(v.name))
		}
	}
	a.shape = m.shape().most(around.shape)
	a.shape.properties = power(len(b.Properties))
	return a
}

// ResolveName returns a variable's value.
func (a *activation) ResolveName(name string) (any, bool) {
	i, ok := variableIndex[name]
	switch {
	case !ok:
		return nil, false
	case variables[i].read != nil:
		return a.values[i], true
	}
	return variables[i].of(a), true
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
