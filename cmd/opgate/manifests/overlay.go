package manifests

import (
	"path"
	"slices"

	"github.com/opgate/opgate/internal/text"
)

// world is a set of kustomizations that are judged together, with everything that has no alternative.
type world struct {
	name   string
	builds []*build
}

// alternatives reports whether two kustomizations are built from one base.
func alternatives(a, b *build) bool {
	return a != b && slices.ContainsFunc(a.from, func(dir string) bool { return slices.Contains(b.from, dir) })
}

// worlds sorts kustomizations. Overlays of one base are alternatives, as for development and production: they describe
// the same objects, so each is judged apart, together with the overlays of the same name of other bases. What has no
// alternative belongs to every world.
func worlds(builds []*build) (common []*build, list []world) {
	for _, b := range builds {
		if !slices.ContainsFunc(builds, func(other *build) bool { return alternatives(b, other) }) {
			common = append(common, b)
			continue
		}
		name := path.Base(b.dir)
		i := slices.IndexFunc(list, func(w world) bool {
			return w.name == name && !slices.ContainsFunc(w.builds, func(other *build) bool { return alternatives(b, other) })
		})
		if i < 0 {
			list = append(list, world{name: name})
			i = len(list) - 1
		}
		list[i].builds = append(list[i].builds, b)
	}
	if len(list) == 0 {
		list = []world{{}}
	}
	return common, list
}

func (w *world) documents() (all []document) {
	for _, b := range w.builds {
		all = append(all, b.documents...)
	}
	return all
}

// unpaired warns of overlays that are judged without one of another base, since none of that has the same name.
// Policies that are overlays would then judge nothing, without a refusal.
func unpaired(list []world) (warnings []string) {
	for i := range list {
		var others []string
		for j := range list {
			for _, other := range list[j].builds {
				if i != j && !slices.ContainsFunc(list[i].builds, func(b *build) bool { return alternatives(b, other) }) {
					others = append(others, other.dir)
				}
			}
		}
		for _, b := range list[i].builds {
			if len(others) > 0 {
				warnings = append(warnings, "warning: overlay "+b.dir+" is judged without "+text.Join(others, maxOthers)+
					": none of them is named "+list[i].name+"; to judge it with one of them, give both directories alone")
			}
		}
	}
	return warnings
}

// maxOthers bounds the overlays that a warning names.
const maxOthers = 5
