package watches

import "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

// group is the set of dependencies of one kind in one namespace. Its watch covers a fixed set of objects. For further
// names a second watch is opened, which replaces the first when its initial list is complete: the known state stays
// available meanwhile, however many names are added one after the other.
type group struct {
	subject
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

// open watches a target according to the current definition of its kind. It does nothing if that has not changed.
func (w *Watches) open(t *target) {
	s, ok := w.subjectOf(t.Target)
	if t.group != nil && ok && t.group.subject == s {
		return
	}
	w.close(t)
	if !ok || t.Template || w.run == nil {
		return
	}
	g := w.groups[s]
	if g == nil {
		g = &group{subject: s, targets: map[*target]struct{}{}}
		w.groups[s] = g
	}
	g.targets[t] = struct{}{}
	t.group = g
	w.extend(g)
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
	f := w.newWatch(g.subject, names)
	f.changed = func(old, now *unstructured.Unstructured) { w.notify(w.interested(g, old, now)) }
	f.onChange = func(*watchState) { w.notify(w.promote(g, f)) }
	g.next = f
	w.run(f)
}

// promote replaces the current watch with one that has been read, and returns all owners interested in the group. A
// forbidden watch replaces nothing: what the current one can read stays available.
func (w *Watches) promote(g *group, f *watch) owners {
	w.mu.Lock()
	defer w.mu.Unlock()
	if f == g.next && w.groups[g.subject] == g {
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
		all.add(t.owners)
	}
	return all
}

// interested returns the owners that are interested in an object that changed.
func (w *Watches) interested(g *group, old, now *unstructured.Unstructured) owners {
	name := ""
	for _, u := range []*unstructured.Unstructured{old, now} {
		if u != nil {
			name = u.GetName()
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	all := owners{}
	for t := range g.targets {
		if t.Name == name {
			all.add(t.owners)
		}
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
	delete(g.targets, t)
	if len(g.targets) > 0 {
		return
	}
	for _, f := range g.watches() {
		if f != nil {
			f.stop()
		}
	}
	delete(w.groups, g.subject)
}
