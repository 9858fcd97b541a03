package manifests

import (
	"bytes"
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	policyv1 "github.com/opgate/opgate/api/policy/v1"
	"github.com/opgate/opgate/snapshot"
)

// loader collects the objects of a unit.
type loader struct {
	*Unit
	in       *Input
	seen     map[identity]*Object
	policies []policyDocument
	// written are the objects that no Policy applies, once these are read.
	written map[identity]*Object
}

// load reads the objects of all units.
func (in *Input) load() {
	if in.options.Together {
		in.together()
	}
	for _, u := range in.Units {
		u.Files.Partial = in.options.Together // a command on plans asks for what files lack
		l := &loader{Unit: u, in: in, seen: map[identity]*Object{}}
		documents := u.source.documents
		if u.build != nil {
			documents = u.build.documents
		}
		for _, d := range documents {
			l.document(d)
		}
		l.allTemplates()
	}
	for _, u := range in.Units {
		for _, other := range in.Units {
			if other.source.policies || other == u.source.plain {
				u.hidden = cmp.Or(u.hidden, other.hidden)
			}
		}
	}
	for _, u := range in.Units {
		in.share(u)
	}
	in.Units = slices.DeleteFunc(in.Units, func(u *Unit) bool { return len(u.Objects) == 0 && !in.options.Together })
}

// together makes one unit of all.
func (in *Input) together() {
	all := &Unit{Name: ".", source: &source{}}
	for _, s := range in.sources {
		all.source.documents = append(all.source.documents, s.documents...)
	}
	for _, u := range in.Units {
		if u.build != nil {
			all.source.documents = append(all.source.documents, u.build.documents...)
		}
	}
	in.Units = []*Unit{all}
}

// document reads a document of the unit, once for each namespace that Applications of its directory set.
func (l *loader) document(d document) {
	from := origin{top: true}
	dir := path.Dir(d.File)
	if l.build != nil {
		dir = l.Name
	} else {
		from.partial = slices.ContainsFunc(l.source.kustomizations, func(k *kustomization) bool {
			return d.File != "" && strings.HasPrefix(d.File, strings.TrimPrefix(k.dir+"/", "./"))
		})
	}
	deployers := l.in.deployersOf(l.source, dir)
	for i, by := range deployers {
		from.deploy, from.again = by, i > 0
		l.value(d, from)
	}
	if len(deployers) == 0 {
		l.value(d, from)
	}
}

// origin is where an object was found.
type origin struct {
	// apiVersion and kind are what the elements of a list are when they do not say so.
	apiVersion, kind string
	// foreign lists may hold anything.
	foreign bool
	// top is set for what is in no list and in no other object, wrapped for what is in another object.
	top, wrapped bool
	// partial is set where an object may be a part that is merged into another one: in a ConfigurationPolicy, or a
	// patch below a kustomization that no kustomization lists.
	partial bool
	// depth counts the lists and the objects around it.
	depth int
	// deploy is what applies it; again is set if what that does not change was read before.
	deploy *deployer
	again  bool
}

// maxLists bounds the lists in lists: each is decoded once for each list around it. kubectl writes no list
// in a list.
const maxLists = 8

// value reads one object, or all elements of a list. What has elements is a list whatever its kind is
// called, as it is for kubectl, so that nothing hides in one.
func (l *loader) value(d document, from origin) {
	h, faults := headOf(d.raw)
	if from.top && h.isForeign && !(l.in.options.Strict && l.in.options.Together) {
		l.in.foreign[d.Place] = true
		return
	}
	if h.kind == "" && h.apiVersion == "" && len(faults) == 0 {
		h.kind, h.apiVersion = from.kind, from.apiVersion
	}
	if len(faults) == 0 {
		for _, f := range []struct{ name, value string }{{"apiVersion", h.apiVersion}, {"kind", h.kind}} {
			if f.value == "" {
				faults = append(faults, fieldFault{path: f.name, text: f.name + " is missing"})
			}
		}
	}
	if len(faults) > 0 {
		if !from.foreign {
			known := isKnown(groupOf(h.apiVersion))
			l.problems(d, faults, Problem{Operators: known || concerning(d.raw), hides: known && hiding(d.raw)})
		}
		return
	}
	k, err := kindOf(h.apiVersion, h.kind)
	switch {
	case err != nil:
		l.fault(d, []fieldFault{{path: "kind", text: err.Error()}}, nil)
	case k != nil && (!k.unchecked || !h.list):
		l.object(d, k, from)
	case h.list:
		l.list(d, &h, from)
	default:
		l.Files.Add(d.raw, cmp.Or(l.in.options.Namespace, "default"))
		l.wrapped(d, &h, from)
		if isKnown(groupOf(h.apiVersion)) && h.kind != kindConfigurationPolicy && !from.again {
			l.in.unjudged[h.kind]++
		}
	}
}

func (l *loader) list(d document, h *head, from origin) {
	if from.depth++; from.depth > maxLists {
		l.fault(d, []fieldFault{{path: "items", text: fmt.Sprintf("items is a list in more than %d lists", maxLists)}}, nil)
		return
	}
	from.foreign, from.top, from.apiVersion, from.kind = !h.isGenericList(), false, "", ""
	if element, ok := strings.CutSuffix(h.kind, "List"); ok && from.foreign {
		from.apiVersion, from.kind = h.apiVersion, element
		k, err := kindOf(h.apiVersion, element)
		from.foreign = k == nil && err == nil
	}
	for i, raw := range h.items {
		item := document{Place: d.Place, raw: raw, tree: d.tree.within(fmt.Sprintf("items[%d]", i))}
		item.Line = item.tree.line("", d.Line)
		l.value(item, from)
	}
}

// object reads an object of a kind that counts.
func (l *loader) object(d document, k *kind, from origin) {
	o := &Object{Place: d.Place, tree: d.tree, Group: k.Group, Kind: k.Kind,
		cluster: k.clusterScoped(), raw: d.raw}
	if k.unchecked && from.wrapped && from.partial {
		return // a ConfigurationPolicy that looks at it
	}
	if field := unresolved(d.raw); field != "" && !k.ours() && isKnown(k.Group) {
		l.in.recognised(d.at(d.tree.line(field, d.Line)), k.Kind+" with a template in "+field+d.Via)
		return
	}
	faults := k.read(d.raw, o)
	changed := o.Namespace
	if o.identified && !o.cluster {
		by := from.deploy
		if by != nil && (by.replaces || changed == "") {
			changed = cmp.Or(by.namespace, changed)
		}
		if from.again && changed == o.Namespace {
			return
		}
		if by != nil && changed != o.Namespace {
			o.Via += ", for " + by.name
		}
		changed = cmp.Or(changed, l.in.options.Namespace)
		o.Unstated, changed = changed == "", cmp.Or(changed, "default")
	} else if from.again {
		return
	}
	if o.identified {
		faults = append(faults, nameFaults(o, changed)...)
	}
	if len(faults) > 0 && (from.partial || k.unchecked) && (from.partial && opensUnresolved.Match(d.raw) ||
		!slices.ContainsFunc(faults, func(f fieldFault) bool { return !f.absent })) {
		if isKnown(k.Group) {
			l.in.recognised(d.Place, "a partial "+k.Kind+d.Via+": "+faults[0].text)
		}
		return
	}
	if len(faults) == 0 {
		o.Refused = refusedBySchema(k.GroupVersionKind, d.raw)
		if current := snapshot.OperatorPolicies; k.kept == current && k.GroupVersionKind != current.GroupVersionKind {
			o.Refused = append(o.Refused, refusedBySchema(current.GroupVersionKind, o.raw)...) // what conversion adds
		}
	}
	if ofOLM[k.GroupVersionKind] != nil { // on its own kinds Opgate has rules with the same answer
		faults = append(faults, faultsOf(o.Refused, d.raw)...)
	}
	if len(faults) == 0 {
		faults = l.store(o, k, changed)
	}
	if len(faults) > 0 {
		l.fault(d, faults, k)
		return
	}
	if policy, ok := o.Value.(*policyv1.Policy); ok {
		l.policies = append(l.policies, policyDocument{d, o, policy})
	}
	if o.identified && !l.add(o) {
		return
	}
	o.Hub = !d.template && bytes.Contains(d.raw, []byte(hubOpens)) // a Policy has those of its templates
	if k.unchecked && o.stored != nil && isKnown(k.Group) {
		l.in.unjudged[k.Kind]++
	}
	l.Objects = append(l.Objects, o)
}

// add records an object, and reports whether it is judged. Of two of one name the first is what others are judged by.
func (l *loader) add(o *Object) bool {
	first := l.seen[o.identity()]
	if first == nil {
		l.seen[o.identity()] = o
		return true
	}
	o.stored = nil
	twice := fmt.Sprintf("%s %s is defined twice, first in %s", o.Kind, o.Key(), first.Place)
	switch {
	case (o.IsPolicy() || o.labels != nil || l.in.options.Together) && first.equal(o):
		return false // a namespace comes with everything that is installed in it
	case o.IsPolicy() || l.in.options.Together:
		l.in.problem(l.Unit, Problem{Place: o.Place, Text: twice, Operators: true, hides: !isCarrier(o)})
		return false
	}
	if o.labels != nil {
		l.ambiguous = cmp.Or(l.ambiguous, o.Place.String())
	} else {
		twice += "; both are judged"
	}
	l.in.Notes = append(l.in.Notes, Note{Warning: true, Place: o.Place, Text: twice})
	return true
}

// store reads an object as the gate keeps it, with the namespace and the name that it gets when it is created.
func (l *loader) store(o *Object, k *kind, namespace string) (faults []fieldFault) {
	if k.kept == nil {
		if !o.cluster && o.identified {
			o.Namespace = namespace
		}
		return nil
	}
	if o.Name == "" || o.Namespace != namespace && !o.cluster {
		name := o.Name
		if name == "" { // it is open what the API server generates
			name = o.generateName + "*"
			for l.seen[identity{o.Kind, namespace, name}] != nil {
				name += "*"
			}
		}
		strict := o.Strict // those of the document as it was written
		raw, err := named(o.raw, namespace, name)
		if err != nil {
			return orFault(nil, err)
		}
		o.raw = raw
		if faults = k.read(raw, o); len(faults) > 0 {
			return faults
		}
		o.Strict = strict
	}
	if l.seen[o.identity()] == nil {
		l.Files.Add(o.raw, "")
	}
	read := snapshot.Reader{Unreadable: func(_ *snapshot.Kind, _ types.NamespacedName, err error) {
		faults = orFault(faults, err)
	}}
	o.stored = read.Read(k.kept, o.raw)
	return faults
}

// fault records what is wrong with an object of a kind; nil for one whose kind is not known.
func (l *loader) fault(d document, faults []fieldFault, k *kind) {
	p := Problem{Operators: concerning(d.raw), hides: hiding(d.raw)}
	if k != nil {
		p.Operators = isKnown(k.Group)
		p.hides = k.judges(d.raw)
	}
	l.problems(d, faults, p)
}

func (l *loader) problems(d document, faults []fieldFault, p Problem) {
	for _, f := range faults {
		p.Place, p.Text = d.at(d.tree.line(f.path, d.Line)), f.text
		l.in.problem(l.Unit, p)
	}
}
