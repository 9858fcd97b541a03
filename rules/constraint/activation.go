package constraint

import (
	"slices"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"

	"github.com/opgate/opgate/olm"
)

// activation holds the variables for one bundle, namespace and cluster. It is created once per bundle, not per rule.
type activation struct {
	vocabulary *vocabulary
	// bundle is empty for a write.
	bundle *Bundle
	around *surroundings
	// values are those of the variables with a read or a write function, by their position in the vocabulary.
	values   []ref.Val
	shape    shape
	unknown  Attributes
	patterns []*interpreter.AttributePattern
	// manifest is nil until the first rule reads the manifest of the ClusterServiceVersion.
	manifest *manifestValues
	// annotations is nil until the first rule reads them.
	annotations *annotationValues
	// changes is nil until the first rule reads what the bundle changes.
	changes *changeValues
	// configured is nil until the first rule reads images or the config.
	configured *configuredValues
}

// manifestValues are the lists of a Manifest as CEL values.
type manifestValues struct {
	clusterPermissions, permissions, webhooks, conversionCRDs ref.Val
	// shape is the shape of the activation including these lists.
	shape shape
}

// annotationValues are the annotations of a Manifest as a CEL value. They have a shape of their own: rules that do not
// read them are not charged for their texts.
type annotationValues struct {
	values ref.Val
	shape  shape
}

// changeValues are the lists of a Change as a CEL value. Like annotations they have a shape of their own.
type changeValues struct {
	values ref.Val
	shape  shape
}

// configuredValues are the images of a bundle, and the config of its Subscription, as CEL values. Like annotations they
// have a shape of their own.
type configuredValues struct {
	images, config ref.Val
	shape          shape
}

func newActivation(b *Bundle, around *surroundings) *activation {
	missing := unknownOf(around.facts, b)
	a := &activation{vocabulary: vocabularies[OnBundle], bundle: b, around: around,
		values: make([]ref.Val, len(variables)), unknown: missing | around.unknownAttributes,
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
	i, ok := a.vocabulary.index[name]
	if !ok {
		return nil, false
	}
	if of := a.vocabulary.variables[i].of; of != nil {
		return of(a), true
	}
	return a.values[i], true
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

// differences reads what the bundle changes on first use.
func (a *activation) differences() *changeValues {
	if a.changes == nil {
		m := measure{elements: len(ChangeLists)}
		lists := make(map[string]any, len(ChangeLists))
		for _, name := range ChangeLists {
			lists[name] = m.list(a.bundle.change().Lists[name])
		}
		a.changes = &changeValues{values: types.NewStringInterfaceMap(types.DefaultTypeAdapter, lists)}
		a.changes.shape = a.shape.most(m.shape())
	}
	return a.changes
}

// settings reads the config of the Subscription, and the images that it and the ClusterServiceVersion name, on first
// use.
func (a *activation) settings() *configuredValues {
	if a.configured == nil {
		var m measure
		parts := a.bundle.Config.Parts()
		images, err := a.contents().Images()
		a.configured = &configuredValues{
			images: m.images(slices.Concat(images, parts.Images()), err),
			config: types.NewStringInterfaceMap(types.DefaultTypeAdapter, map[string]any{
				"fields": m.list(parts.Fields), "env": m.list(parts.Env), "envFrom": m.list(parts.EnvFrom)}),
		}
		a.configured.shape = a.shape.most(m.shape())
	}
	return a.configured
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
	if uses&Config != 0 {
		shape = shape.most(a.settings().shape)
	}
	if uses&ChangeSet != 0 {
		shape = shape.most(a.differences().shape)
	}
	return shape
}

// Parent returns nil: there is one level of names.
func (a *activation) Parent() interpreter.Activation { return nil }
