package cluster

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/rules/facts"
	"github.com/opgate/opgate/snapshot"
)

// base is what was listed, before anything that it refers to was read.
type base struct {
	reader   *Reader
	options  Options
	versions facts.Cluster
	stored   []*snapshot.Object
	notes    []string
}

// identity names an object among all kinds.
type identity struct {
	kind *snapshot.Kind
	types.NamespacedName
}

func identityOf(o *snapshot.Object) identity { return identity{o.Kind(), o.Key()} }

// Again returns the state of the same listing with other objects: instead replaces those of the same kind, namespace
// and name, and gone are left out. What these refer to is read, as by Read; nothing is listed a second time, so that
// two states differ in these objects only.
func (s *State) Again(ctx context.Context, instead, gone []*snapshot.Object) (*State, error) {
	in := &input{Reader: s.listed.reader, options: s.listed.options, versions: s.listed.versions,
		notes: slices.Clone(s.listed.notes)}
	without := map[identity]bool{}
	for _, o := range slices.Concat(instead, gone) {
		without[identityOf(o)] = true
	}
	for _, o := range s.listed.stored {
		if !without[identityOf(o)] {
			in.stored = append(in.stored, o)
		}
	}
	in.stored = append(in.stored, instead...)
	return in.finish(ctx)
}
