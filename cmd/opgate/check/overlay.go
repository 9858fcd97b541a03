package check

import (
	"path"
	"slices"
)

// world is a set of kustomizations that are judged together, with everything that has no alternative.
type world struct {
	name   string
	builds []*build
}

// worlds sorts kustomizations. Overlays of one base are alternatives, as for development and production: they describe the same objects,
// so each is judged apart, together with the overlays of the same name of other bases. What has no alternative belongs to every world.
func worlds(builds []*build) (common []*build, list []world) {
	alternatives := func(a, b *build) bool {
		return a != b && slices.ContainsFunc(a.from, func(dir string) bool { return slices.Contains(b.from, dir) })
	}
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
