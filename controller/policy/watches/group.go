package watches

import (
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// group is the set of dependencies of one kind in one namespace. Its watch covers a fixed set of objects. For further
// names a second watch is opened, which replaces the first when its initial list is complete: the known state stays
// available meanwhile, however many names are added one after the other.
type group struct {
	watchKey
	targets map[*target]struct{}
	// current has been read, or is forbidden now; next is being read, or is forbidden. Either may be nil.
	current, next *watch
}

func (g *group) watches() [2]*watch { return [2]*watch{g.current, g.next} }

// of returns the watch that covers an object, nil if none does.
func (g *group) of(name string) *watch {
	switch {
	case g == nil:
		return nil
	case g.current.covers(name):
		return g.current
	case g.next.covers(name):
		return g.next
	}
	return nil
}

// open watches a target according to the current definition of its kind. It does nothing if that has not changed. What
// is not served, or cannot exist, is not watched.
func (w *Watches) open(t *target) {
	d, ok := w.kinds.definition(t.kind())
	ok = ok && d.serves(t.Version) && !t.IsPolicy() && !t.IsSet() && d.possible(t.Ref)
	if t.group != nil && ok && t.group.watchKey == d.watchKey(t.Namespace) {
		return
	}
	w.close(t)
	if !ok || t.Template || w.run == nil {
		return
	}
	s := d.watchKey(t.Namespace)
	t.group = w.groups[s]
	if t.group == nil {
		t.group = &group{watchKey: s, targets: map[*target]struct{}{}}
		w.groups[s] = t.group
	}
	t.group.targets[t] = struct{}{}
	w.extend(t.group)
}

// extend opens the next watch of a group if some names are covered by neither watch. A watch that is still being read
// is not replaced, so there are at most two.
func (w *Watches) extend(g *group) {
	if g.next != nil && g.next.known.Load() == nil || w.run == nil {
		return
	}
	names, covered := map[string]struct{}{}, true
	for t := range g.targets {
		names[t.Name] = struct{}{}
		covered = covered && g.of(t.Name) != nil
	}
	if covered {
		return
	}
	if g.next != nil {
		g.next.stop()
	}
	f := w.newWatch(g.watchKey, names)
	f.changed = func(old, now *unstructured.Unstructured) {
		if now == nil {
			now = old
		}
		w.notify(w.ownersOf(func(t *target) bool { return t.group == g && t.Name == now.GetName() }))
	}
	f.onChange = func(*watchState) { w.notify(w.promote(g, f)) }
	g.next = f
	w.run(f)
}

// promote replaces the current watch with one that has been read, and returns all owners interested in the group. A
// forbidden watch replaces nothing: what the current one can read stays available.
func (w *Watches) promote(g *group, f *watch) owners {
	w.mu.Lock()
	defer w.mu.Unlock()
	if f == g.next && w.groups[g.watchKey] == g {
		if known := f.known.Load(); known != nil && known.denied == nil {
			if g.current != nil {
				g.current.stop()
			}
			g.current, g.next = f, nil
		}
		w.extend(g)
	}
	all := owners{}
	for t := range g.targets {
		maps.Copy(all, t.owners)
	}
	return all
}

// close removes a target; the last one ends the watches of its group.
func (w *Watches) close(t *target) {
	g := t.group
	if g == nil {
		return
	}
	t.group = nil
	if delete(g.targets, t); len(g.targets) > 0 {
		return
	}
	for _, f := range g.watches() {
		if f != nil {
			f.stop()
		}
	}
	delete(w.groups, g.watchKey)
}

// openTemplates watches the template objects of a kind if any may exist.
func (w *Watches) openTemplates(kind schema.GroupKind) {
	d, ok := w.kinds.definition(kind)
	ok = ok && w.kinds.template(d)
	if f := w.templates[kind]; f != nil {
		if ok && f.watchKey == d.watchKey("") {
			return
		}
		f.stop()
		delete(w.templates, kind)
	}
	if !ok || w.run == nil {
		return
	}
	f := w.newWatch(d.watchKey(""), nil)
	f.changed = func(old, now *unstructured.Unstructured) {
		notified := owners{}
		notified.addParents(old, now)
		w.notify(notified)
	}
	f.onChange = func(before *watchState) {
		notified := w.ownersOf(func(t *target) bool { return t.Template && t.kind() == kind })
		notified.addParents(before.all()...)
		notified.addParents(f.known.Load().all()...)
		w.notify(notified)
	}
	w.templates[kind] = f
	w.run(f)
}
