package constraint

import (
	"slices"

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
	// values are those of the variables, by their position in the vocabulary; nil for one that no rule has read yet.
	values   []ref.Val
	unknown  Attributes
	patterns []*interpreter.AttributePattern
}

func newActivation(b *Bundle, around *surroundings) *activation {
	missing := unknownOf(around.facts, b)
	a := &activation{vocabulary: vocabularies[OnBundle], bundle: b, around: around,
		values: make([]ref.Val, len(variables)), unknown: missing | around.unknownAttributes,
		patterns: slices.Clip(around.unknown)}
	for i := range variables {
		v := &variables[i]
		if v.read != nil {
			a.values[i] = v.read(b, around.facts)
		}
		if missing&v.attribute != 0 {
			a.patterns = append(a.patterns, interpreter.NewAttributePattern(v.name))
		}
	}
	return a
}

// ResolveName returns a variable's value.
func (a *activation) ResolveName(name string) (any, bool) {
	i, ok := a.vocabulary.index[name]
	if !ok {
		return nil, false
	}
	if a.values[i] == nil {
		a.values[i] = a.vocabulary.variables[i].of(a)
	}
	return a.values[i], true
}

// changed returns the lists of what the bundle changes.
func (a *activation) changed() ref.Val {
	lists := make(map[string]any, len(ChangeLists))
	for _, name := range ChangeLists {
		lists[name] = list(a.bundle.change().Lists[name])
	}
	return mapOf(lists)
}

// images returns the images that the ClusterServiceVersion and the config of the Subscription name.
func (a *activation) images() ref.Val {
	parts := a.bundle.Config.Parts()
	named, err := a.contents().Images()
	return images(slices.Concat(named, parts.Images()), err)
}

// config returns what the config of the Subscription sets.
func (a *activation) config() ref.Val {
	parts := a.bundle.Config.Parts()
	return mapOf(map[string]any{"fields": list(parts.Fields), "env": list(parts.Env), "envFrom": list(parts.EnvFrom)})
}

func (a *activation) contents() Manifest {
	if a.bundle.Manifest == nil {
		return &olm.Demands{Spec: &olm.CSVSpec{}}
	}
	return a.bundle.Manifest
}

// Parent returns nil: there is one level of names.
func (a *activation) Parent() interpreter.Activation { return nil }
