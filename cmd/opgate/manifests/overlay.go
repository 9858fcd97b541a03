package manifests

import (
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/opgate/opgate/internal/text"
)

// Pairing names the directories that are judged together with that of a cluster.
type Pairing struct {
	Dir  string
	With []string
	// From is where it was read from, as in ".opgate.yaml:3".
	From Place
}

// content is what one file or one kustomization brings.
type content struct {
	dir       string
	documents []document
	// build is nil for a file.
	build *build
	// at is the directory of the clusters that it belongs to; empty for what belongs to all.
	at string
	// paired is set if a Pairing names that directory.
	paired bool
}

// unit is a cluster that has an alternative, or what is judged together with one: a directory or an overlay.
type unit struct {
	dir string
	// overlays are the kustomizations of it that have a base.
	overlays []*build
	// pairing is nil for a unit that no Pairing makes.
	pairing *Pairing
}

// owns reports whether something belongs to a unit.
func (u *unit) owns(c *content) bool {
	if u.pairing != nil {
		return c.paired && (c.at == u.dir || slices.Contains(u.pairing.With, c.at))
	}
	return !c.paired && within(u.dir, c.at)
}

// world are units that are judged together, with everything that has no alternative.
type world struct {
	name  string
	units []*unit
}

func (w *world) owns(c *content) bool {
	return c.at != "" && slices.ContainsFunc(w.units, func(u *unit) bool { return u.owns(c) })
}

// documents are those of a world: what all worlds have, then its own.
func (w *world) documents(contents []*content) (all []document) {
	for _, c := range contents {
		if c.at == "" {
			all = append(all, c.documents...)
		}
	}
	for _, c := range contents {
		if w.owns(c) {
			all = append(all, c.documents...)
		}
	}
	return all
}

// layout is how the input is divided into clusters.
type layout struct {
	contents []*content
	pairings []Pairing
	// clusters has, for a directory, those below it that hold the same object, each a cluster.
	clusters clusters
	worlds   []world
}

// newLayout divides what was read. Alternatives are judged apart:
//
//   - overlays of one base, as for development and production, describe the same objects,
//   - directories of one argument that hold the same object, of which neither contains the other, are two clusters,
//   - the directories of Pairings are clusters by themselves, each with what is paired with it.
//
// Others are judged together if they have one name, as the overlays prod of two bases. What has no alternative belongs
// to every world.
func newLayout(contents []*content, pairings []Pairing, argument func(Place) int) *layout {
	l := &layout{contents: contents, pairings: pairings, clusters: clusters{}}
	l.clusters.find(contents, argument)
	var units []*unit
	for i := range pairings {
		units = append(units, &unit{dir: pairings[i].Dir, pairing: &pairings[i]})
	}
	for _, c := range contents {
		c.at, c.paired = l.paired(c.dir)
		if !c.paired {
			c.at = l.clusters.of(c.dir)
			if c.build != nil && l.isUnit(c.build) {
				c.at = c.dir
				units = append(units, &unit{dir: c.dir, overlays: []*build{c.build}})
			}
		}
	}
	units = append(units, l.directories(units)...)
	for _, u := range units {
		for _, c := range contents {
			if c.build != nil && !slices.Contains(u.overlays, c.build) && u.owns(c) &&
				(u.pairing == nil || within(c.dir, u.dir)) {
				u.overlays = append(u.overlays, c.build)
			}
		}
	}
	l.worlds = l.pair(slices.DeleteFunc(units, func(u *unit) bool { return !slices.ContainsFunc(contents, u.owns) }))
	return l
}

// paired returns the innermost directory around another that a Pairing names.
func (l *layout) paired(dir string) (at string, found bool) {
	for up := range upwards(dir) {
		for i := range l.pairings {
			if l.pairings[i].Dir == up || slices.Contains(l.pairings[i].With, up) {
				return up, true
			}
		}
	}
	return "", false
}

// isUnit reports whether an overlay has an alternative in its own cluster.
func (l *layout) isUnit(b *build) bool {
	return slices.ContainsFunc(l.contents, func(c *content) bool {
		return c.build != nil && shareBase(b, c.build) && l.clusters.of(c.dir) == l.clusters.of(b.dir)
	})
}

// directories returns the clusters that are directories, those left out that have others within.
func (l *layout) directories(units []*unit) (found []*unit) {
	roots := l.clusters.all()
	for _, dir := range roots {
		inside := func(other string) bool { return other != dir && within(other, dir) }
		if !slices.ContainsFunc(roots, inside) && !slices.ContainsFunc(units,
			func(u *unit) bool { return u.pairing == nil && within(u.dir, dir) }) {
			found = append(found, &unit{dir: dir})
		}
	}
	return found
}

// pair puts units of one name together that are no alternatives.
func (l *layout) pair(units []*unit) (list []world) {
	for _, u := range units {
		name := path.Base(u.dir)
		i := slices.IndexFunc(list, func(w world) bool {
			return w.name == name && !slices.ContainsFunc(w.units,
				func(other *unit) bool { return l.alternatives(u, other) })
		})
		if i < 0 {
			list = append(list, world{name: name})
			i = len(list) - 1
		}
		list[i].units = append(list[i].units, u)
	}
	count := map[string]int{}
	for i := range list {
		count[list[i].name]++
	}
	for i := range list {
		if count[list[i].name] > 1 {
			list[i].name = list[i].units[0].dir
		}
	}
	if len(list) == 0 {
		list = []world{{}}
	}
	return list
}

func (l *layout) alternatives(a, b *unit) bool {
	switch {
	case a == b:
		return false
	case a.pairing != nil && b.pairing != nil, l.clusters.separate(a.dir, b.dir):
		return true
	}
	return slices.ContainsFunc(a.overlays, func(x *build) bool {
		return slices.ContainsFunc(b.overlays, func(y *build) bool { return shareBase(x, y) })
	})
}

// shareBase reports whether two kustomizations are built from one base.
func shareBase(a, b *build) bool {
	return a != b && slices.ContainsFunc(a.from, func(dir string) bool { return slices.Contains(b.from, dir) })
}

// unpaired warns of clusters that are judged without one of other alternatives, since none of these has the same name.
// Policies that are among them would then judge nothing, without a refusal.
func (l *layout) unpaired() (warnings []Problem) {
	for i := range l.worlds {
		w := &l.worlds[i]
		for _, u := range w.units {
			if u.pairing != nil {
				warnings = append(warnings, l.unread(u)...)
			}
		}
		if slices.ContainsFunc(w.units, func(u *unit) bool { return u.pairing != nil }) {
			continue
		}
		var others []string
		for j := range l.worlds {
			for _, other := range l.worlds[j].units {
				if i != j && !slices.ContainsFunc(w.units, func(u *unit) bool { return l.alternatives(u, other) }) {
					others = append(others, other.dir)
				}
			}
		}
		for _, u := range w.units {
			if len(others) > 0 {
				warnings = append(warnings, Problem{Place{File: u.dir},
					"is judged without " + text.Join(others, maxOthers) +
						": none of them is named " + path.Base(u.dir) +
						"; to judge it with one of them, give both directories alone, or name them in overlays of " +
						ConfigFile})
			}
		}
	}
	return warnings
}

// unread warns of what a Pairing names and the input does not have.
func (l *layout) unread(u *unit) (warnings []Problem) {
	for _, dir := range u.pairing.With {
		if !slices.ContainsFunc(l.contents, func(c *content) bool { return c.paired && c.at == dir }) {
			warnings = append(warnings, Problem{u.pairing.From, "overlay " + u.dir + " is judged without " + dir +
				": nothing of that directory is in the input"})
		}
	}
	return warnings
}

// maxOthers bounds the overlays that a warning names.
const maxOthers = 5

// clusters are directories that are clusters, by the directory that holds them.
type clusters map[string]map[string]bool

// find finds the directories that hold the same object. Those of two arguments were put together by who named them.
func (c clusters) find(contents []*content, argument func(Place) int) {
	type key struct {
		identity
		argument int
	}
	type found struct {
		dirs   map[string]bool
		labels map[string]string
		differ bool
	}
	objects := map[key]*found{}
	for _, from := range contents {
		for _, d := range from.documents {
			for id, labels := range identities(d.raw, "", "", 0) {
				k := key{id, argument(d.Place)}
				at := objects[k]
				if at == nil {
					at = &found{dirs: map[string]bool{}, labels: labels}
					objects[k] = at
				}
				at.dirs[from.dir] = true
				// A namespace comes with everything that is installed in it.
				at.differ = at.differ || labels == nil || !maps.Equal(labels, at.labels)
			}
		}
	}
	for _, at := range objects {
		if len(at.dirs) < 2 || !at.differ {
			continue
		}
		below := clusters{}
		for dir := range at.dirs {
			for up := range upwards(dir) {
				below.add(path.Dir(up), up)
			}
		}
		for parent, children := range below {
			if len(children) > 1 {
				for child := range children {
					c.add(parent, child)
				}
			}
		}
	}
}

func (c clusters) add(parent, child string) {
	if parent == child {
		return
	}
	if c[parent] == nil {
		c[parent] = map[string]bool{}
	}
	c[parent][child] = true
}

// of returns the innermost cluster that a directory is in; empty if there is none.
func (c clusters) of(dir string) string {
	for up := range upwards(dir) {
		if c[path.Dir(up)][up] {
			return up
		}
	}
	return ""
}

// separate reports whether two directories are in two clusters.
func (c clusters) separate(a, b string) bool {
	for up := range upwards(a) {
		parent := path.Dir(up)
		if !c[parent][up] {
			continue
		}
		for other := range upwards(b) {
			if other != up && path.Dir(other) == parent && c[parent][other] {
				return true
			}
		}
	}
	return false
}

// all returns the clusters, sorted.
func (c clusters) all() (dirs []string) {
	for _, children := range c {
		dirs = slices.AppendSeq(dirs, maps.Keys(children))
	}
	slices.Sort(dirs)
	return dirs
}

// upwards returns a directory and all around it.
func upwards(dir string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for yield(dir) && path.Dir(dir) != dir {
			dir = path.Dir(dir)
		}
	}
}

// within reports whether a directory is another one, or below it.
func within(dir, root string) bool {
	return root == "." || dir == root || strings.HasPrefix(dir, strings.TrimSuffix(root, "/")+"/")
}
