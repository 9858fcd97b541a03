package watches

import "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

// group is what is waited for of one kind in one namespace. Its watch keeps a fixed set of objects. Where more are waited for, the next
// watch is opened beside it and takes over when it has read all: what is known stays known meanwhile, however many names come one after
// the other.
type group struct {
	subject
	targets map[*target]struct{}
	// current has been read, or is not allowed any more; next is being read, or is not allowed. Either may be nil.
	current, next *follower
}

func (g *group) followers() [2]*follower { return [2]*follower{g.current, g.next} }

// of returns what follows an object, nil if nothing does.
func (g *group) of(name string) *follower {
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

// open follows a target as its kind is now. It goes on as it is if that has not changed.
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

// extend opens the next watch of a group if there are names that neither watch covers. One that is being read is let finish, so that
// there are two at most.
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
	f := w.newFollower(g.subject, names)
	f.changed = func(old, now *unstructured.Unstructured) { w.notify(w.interested(g, old, now)) }
	f.learned = func(*knowledge) { w.notify(w.promote(g, f)) }
	g.next = f
	w.run(f)
}

// promote puts a watch that has been read in the place of the one before it, and returns all who want to know of the group. One that is not
// allowed replaces nothing: what could be read on its own stays.
func (w *Watches) promote(g *group, f *follower) owners {
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

// interested are those who want to know of an object that changed.
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

// close leaves a target alone; the last one ends the watches of its group.
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
	for _, f := range g.followers() {
		if f != nil {
			f.stop()
		}
	}
	delete(w.groups, g.subject)
}
