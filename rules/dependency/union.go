package dependency

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/opgate/opgate/internal/text"
)

const (
	// maxUnion bounds the dependencies of all templates of one Policy together, except those that all share: the union
	// of two lists of some hundreds, for each of some hundred templates, would be far larger than the Policy.
	maxUnion = 20_000
	// maxObjects bounds the objects that one Policy depends on: each is watched.
	maxObjects = 1_000
	// maxClashes bounds the clashes that are reported.
	maxClashes = 100
)

// unite sets the dependencies of each template to the union of the Policy's and its own: one per object.
func (p *Policy) unite(own dependencies, extras []dependencies) {
	shared := p.merge(own.list, nil)
	spent, objects := 0, refsOf(shared.list)
	for i := range p.Templates {
		t, extra := &p.Templates[i], extras[i]
		union := shared
		if len(extra.list) > 0 {
			if spent += len(own.list) + len(extra.list); spent > maxUnion {
				t.fault(fmt.Sprintf("the templates of the Policy have more than %d dependencies together: put what they have in common into spec.dependencies, or split the Policy", maxUnion))
				continue
			}
			union = p.merge(own.list, extra.list)
			more := refsOf(union.list)
			if maps.Copy(more, objects); len(more) > maxObjects {
				t.fault(fmt.Sprintf("the templates of the Policy wait for more than %d objects together: split the Policy", maxObjects))
				continue
			}
			objects = more
		}
		t.Dependencies = union.list
		for _, text := range []string{own.fault, extra.fault, union.fault} {
			if text != "" {
				t.fault(text)
			}
		}
	}
}

func refsOf(list []*Dependency) map[Ref]struct{} {
	refs := make(map[Ref]struct{}, len(list))
	for i := range list {
		refs[list[i].Ref] = struct{}{}
	}
	return refs
}

// fault sets the fault of a template unless it has one.
func (t *Template) fault(text string) {
	if t.Fault == "" {
		t.Fault = text
	}
}

// merge merges two sorted lists into one, with one entry per object, and records contradictions.
func (p *Policy) merge(own, extra []*Dependency) dependencies {
	if len(own)+len(extra) == 0 {
		return dependencies{}
	}
	all := slices.Concat(own, extra)
	slices.SortStableFunc(all, func(a, b *Dependency) int { return a.Compare(b.Ref) })
	merged := dependencies{list: all[:0]}
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].Ref == all[0].Ref {
			n++
		}
		one, same := all[0], all[:n]
		if n > 1 {
			one = p.mergeSame(same, len(extra) > 0, &merged)
		}
		merged.list = append(merged.list, one) // never overtakes the reads, which are ahead of it
		all = all[n:]
	}
	merged.list = slices.Clip(merged.list)
	return merged
}

// mergeSame merges entries that name the same object, and records their contradictions. For a template it does not
// repeat those of the Policy's own list.
func (p *Policy) mergeSame(same []*Dependency, template bool, merged *dependencies) *Dependency {
	one := same[0]
	wants, versions := clash(same, func(d *Dependency) string { return string(d.Want) }),
		clash(same, func(d *Dependency) string { return d.Version })
	if i := slices.IndexFunc(same, func(d *Dependency) bool { return d.Version != "" }); i > 0 {
		versioned := *one
		versioned.Version, one = same[i].Version, &versioned
	}
	known := template && !slices.ContainsFunc(same,
		func(d *Dependency) bool { return strings.HasPrefix(d.Path, "spec.policy-templates[") })
	if len(wants.Says) > 1 {
		merged.fault = "waits for " + wants.Text("in states") + ": keep one"
		if !known && len(p.Conflicts) < maxClashes {
			p.Conflicts = append(p.Conflicts, wants)
		}
	}
	if len(versions.Says) > 1 {
		if merged.fault == "" {
			merged.fault = "waits for " + versions.Text("in API versions") + ": keep one"
		}
		if !known && len(p.Duplicates) < maxClashes {
			p.Duplicates = append(p.Duplicates, versions)
		}
	}
	return one
}

// clash lists the different values for one object, each with its first path. Empty values are left out.
func clash(same []*Dependency, says func(d *Dependency) string) Clash {
	c := Clash{Ref: same[0].Ref}
	for i := range same {
		if what := says(same[i]); what != "" && !slices.Contains(c.Says, what) && len(c.Says) < 5 {
			c.Says, c.Paths = append(c.Says, what), append(c.Paths, same[i].Path)
		}
	}
	return c
}

// Text returns "Policy shop/db in states Compliant (spec.dependencies[0]) and NonCompliant (spec.dependencies[1])".
func (c *Clash) Text(in string) string {
	parts := make([]string, len(c.Says))
	for i := range c.Says {
		parts[i] = text.Name(c.Says[i]) + " (" + c.Paths[i] + ")"
	}
	return c.Ref.String() + " " + in + " " + strings.Join(parts, " and ")
}

// Scoped returns the Policy without the namespaces of references to kinds that cluster reports as cluster-scoped. Read
// knows the scope of only a few kinds.
func (p *Policy) Scoped(cluster func(group, kind string) bool) *Policy {
	scope := func(r Ref) Ref {
		if r.Namespace != "" && cluster(r.Group, r.Kind) {
			r.Namespace = ""
		}
		return r
	}
	changed := false
	for i := range p.Templates {
		t := &p.Templates[i]
		changed = changed || scope(t.Ref) != t.Ref ||
			slices.ContainsFunc(t.Dependencies, func(d *Dependency) bool { return scope(d.Ref) != d.Ref })
	}
	if !changed {
		return p
	}
	scoped := map[*Dependency]*Dependency{}
	out := *p
	out.Templates, out.Conflicts, out.Duplicates = slices.Clone(p.Templates), slices.Clone(p.Conflicts),
		slices.Clone(p.Duplicates)
	for i := range out.Templates {
		t := &out.Templates[i]
		t.Ref = scope(t.Ref)
		list := slices.Clone(t.Dependencies)
		for j, d := range list {
			if scoped[d] == nil {
				changed := *d
				changed.Ref, scoped[d] = scope(d.Ref), &changed
			}
			list[j] = scoped[d]
		}
		union := out.merge(list, nil)
		if t.Dependencies = union.list; union.fault != "" {
			t.fault(union.fault)
		}
	}
	return &out
}
