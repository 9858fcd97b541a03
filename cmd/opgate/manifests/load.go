package manifests

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	apifield "k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	policyv1 "github.com/opgate/opgate/api/policy/v1"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/snapshot"
)

// Object is one object of the input.
type Object struct {
	Place
	Kind, Namespace, Name string
	// Value is what is judged, or a *catalog.Package; nil for context. It is one of
	//
	//   *policyv1beta2.OperatorPolicy, *constraintv1.Constraint, *policyv1.Policy, *policyv1beta1.PolicySet,
	//   *olm.Subscription, *olm.InstallPlan, *olm.CatalogSource, *olm.OperatorGroup
	Value any
	// Strict are the unknown fields of an OperatorPolicy or a Constraint.
	Strict []error
	// Refused is what the schema of the kind does not admit.
	Refused apifield.ErrorList
	// Comments are those of its document about this program; of what a kustomization makes, those where it stands.
	Comments []Comment
	// Hubs are the fields with hub templates, which nothing has resolved.
	Hubs []string

	tree *tree
	// raw is the JSON that would be stored, stored what the gate keeps of it; nil for a kind that it does not keep.
	raw    []byte
	stored *snapshot.Object
	// cluster is set for an object that belongs to no namespace.
	cluster bool
	// identified is set once the names have been read.
	identified   bool
	generateName string
	// labels are those of a Namespace; nil for everything else.
	labels map[string]string
}

func (o *Object) identify(m *olm.ObjectMeta) {
	o.Name, o.generateName, o.Namespace = m.Name, m.GenerateName, m.Namespace
	o.identified = true
}

// Key names the object among those of its kind.
func (o *Object) Key() string {
	if o.Namespace == "" {
		return o.Name
	}
	return o.Namespace + "/" + o.Name
}

// LineOf returns the line of a field in the file.
func (o *Object) LineOf(field string) int {
	if field == "" || o.tree == nil {
		return o.Line
	}
	return o.tree.line(field, o.Line)
}

// unjudged is an object that is not judged.
type unjudged struct {
	Place
	kind, name string
	// context is set for one that others are judged by.
	context bool
}

// loader collects objects and problems.
type loader struct {
	Set
	// namespace is the one of objects that name none.
	namespace string
	// strict takes every document for an object.
	strict   bool
	seen     map[identity]*Object
	policies []policyDocument
}

type identity struct{ kind, namespace, name string }

func loadDocuments(documents []document, o *Options) *Set {
	l := &loader{namespace: o.Namespace, strict: o.Strict, seen: map[identity]*Object{}}
	for _, d := range documents {
		l.value(d, origin{top: true})
	}
	l.allTemplates()
	return &l.Set
}

// origin is the list that an object stands in.
type origin struct {
	// apiVersion and kind are what its elements are when they do not say so.
	apiVersion, kind string
	// foreign lists may hold anything.
	foreign bool
	// top is set for what stands in no list at all.
	top bool
	// depth counts the lists around it.
	depth int
}

// maxLists bounds the lists in lists: each is decoded once for each list around it (threat G36). kubectl writes no list
// in a list.
const maxLists = 8

// value reads one object, or all elements of a list. What has elements is a list whatever its kind is
// called, as it is for kubectl, so that nothing hides in one.
func (l *loader) value(d document, from origin) {
	h, faults := headOf(d.raw)
	if from.top && !l.strict && h.isForeign {
		l.foreign = append(l.foreign, d.Place)
		return
	}
	if h.kind == "" && h.apiVersion == "" && len(faults) == 0 {
		h.kind, h.apiVersion = from.kind, from.apiVersion
	}
	if len(faults) == 0 {
		for _, f := range []struct{ name, value string }{{"apiVersion", h.apiVersion}, {"kind", h.kind}} {
			if f.value == "" {
				faults = append(faults, fieldFault{f.name, f.name + " is missing"})
			}
		}
	}
	if len(faults) > 0 {
		if !from.foreign {
			l.fault(d, faults)
		}
		return
	}
	k, err := kindOf(h.apiVersion, h.kind)
	switch {
	case err != nil:
		l.fault(d, []fieldFault{{"kind", err.Error()}})
	case k != nil && (!k.unchecked || !h.list):
		l.object(d, k)
	case h.list:
		l.list(d, &h, from.depth+1)
	default:
		l.files.Add(d.raw, l.namespace)
		if isKnown(groupOf(h.apiVersion)) {
			l.unjudged = append(l.unjudged, unjudged{d.Place, h.kind, nameOf(d.raw), false})
		}
	}
}

func (l *loader) list(d document, h *head, depth int) {
	if depth > maxLists {
		l.fault(d, []fieldFault{{"items", fmt.Sprintf("items is a list in more than %d lists", maxLists)}})
		return
	}
	from := origin{foreign: !h.isGenericList(), depth: depth}
	if element, ok := strings.CutSuffix(h.kind, "List"); ok && from.foreign {
		from.apiVersion, from.kind = h.apiVersion, element
		k, err := kindOf(h.apiVersion, element)
		from.foreign = k == nil && err == nil
	}
	for i, raw := range h.items {
		item := document{Place: d.Place, raw: raw, tree: d.tree.item("items", i)}
		item.Line = item.tree.line("", d.Line)
		item.comments = commentsIn(item.tree, d.comments)
		l.value(item, from)
	}
}

// object reads an object of a kind that counts.
func (l *loader) object(d document, k *kind) {
	o := &Object{Place: d.Place, tree: d.tree, Comments: d.comments, Kind: k.Kind, cluster: k.clusterScoped(),
		raw: d.raw}
	faults := k.read(d.raw, o)
	if o.identified {
		faults = append(faults, nameFaults(o, cmp.Or(o.Namespace, l.namespace))...)
	}
	if len(faults) == 0 {
		o.Refused = refusedBySchema(k.GroupVersionKind, d.raw)
		if current := snapshot.OperatorPolicies; k.kept == current && k.GroupVersionKind != current.GroupVersionKind {
			o.Refused = append(o.Refused, refusedBySchema(current.GroupVersionKind, o.raw)...) // what conversion adds
		}
	}
	if ofOLM[k.GroupVersionKind] != nil { // on its own kinds Opgate has rules with the same answer
		for _, err := range o.Refused {
			faults = append(faults, fieldFault{err.Field, err.Error()})
		}
	}
	if len(faults) == 0 {
		faults = l.store(o, k)
	}
	l.fault(d, faults)
	if len(faults) > 0 {
		return
	}
	if o.identified {
		id := identity{o.Kind, o.Namespace, o.Name}
		first, twice := l.seen[id]
		switch {
		case twice && o.labels != nil && maps.Equal(o.labels, first.labels):
			return // a namespace comes with everything that is installed in it
		case twice:
			l.problems = append(l.problems,
				Problem{d.Place, fmt.Sprintf("%s %s is there twice, first in %s", o.Kind, o.Key(), first.Place)})
			return
		}
		l.seen[id] = o
	}
	o.Hubs = hubFields(d)
	if k.unchecked && o.stored != nil && isKnown(k.Group) {
		l.unjudged = append(l.unjudged, unjudged{d.Place, k.Kind, o.Name, true})
	}
	l.Objects = append(l.Objects, o)
	if policy, ok := o.Value.(*policyv1.Policy); ok {
		l.policies = append(l.policies, policyDocument{d, o, policy})
	}
}

// store reads an object as the gate keeps it, with the namespace and the name that it gets when it is created.
func (l *loader) store(o *Object, k *kind) (faults []fieldFault) {
	if k.kept == nil {
		return nil
	}
	if o.Name == "" || o.Namespace == "" && !o.cluster {
		namespace, name := o.Namespace, o.Name
		if !o.cluster {
			namespace = cmp.Or(namespace, l.namespace)
		}
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
	l.files.Add(o.raw, "")
	read := snapshot.Reader{Unreadable: func(_ *snapshot.Kind, _ types.NamespacedName,
		err error) {
		faults = orFault(faults, err)
	}}
	o.stored = read.Read(k.kept, o.raw)
	return faults
}

// named returns the JSON of an object with a namespace, if it has one, and a name.
func named(raw []byte, namespace, name string) ([]byte, error) {
	u := &unstructured.Unstructured{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &u.Object); err != nil {
		return nil, err
	}
	u.SetNamespace(namespace)
	u.SetName(name)
	return json.Marshal(u.Object)
}

// nameFaults returns what is wrong with the name and the namespace; the API server accepts no other.
func nameFaults(o *Object, namespace string) (faults []fieldFault) {
	add := func(path, value string, problems []string) {
		for _, p := range problems {
			p, _, _ = strings.Cut(p, " (e.g.") // the pattern does not help the user
			faults = append(faults, fieldFault{path, fmt.Sprintf("%s %+q: %s", path, value, p)})
		}
	}
	switch {
	case o.Name != "":
		add("metadata.name", o.Name, validation.NameIsDNSSubdomain(o.Name, false))
	case o.generateName != "":
		add("metadata.generateName", o.generateName, validation.NameIsDNSSubdomain(o.generateName, true))
	default:
		faults = append(faults, fieldFault{"metadata.name", "metadata.name is missing"})
	}
	switch {
	case !o.cluster:
		add("metadata.namespace", namespace, utilvalidation.IsDNS1123Label(namespace))
	case o.Namespace != "":
		add("metadata.namespace", o.Namespace, []string{"a " + o.Kind + " belongs to no namespace; remove it"})
	}
	return faults
}

func (l *loader) fault(d document, faults []fieldFault) {
	for _, f := range faults {
		l.problems = append(l.problems, Problem{d.at(d.tree.line(f.path, d.Line)), f.text})
	}
}

// JSON is what would be stored.
func (o *Object) JSON() []byte { return o.raw }
