package check

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

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	policyv1 "github.com/opgate/opgate/api/policy/v1"
	policyv1beta1 "github.com/opgate/opgate/api/policy/v1beta1"
	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/snapshot"
	"github.com/opgate/opgate/snapshot/contents"
)

// object is one object of the input. One of operatorPolicy, constraint, policy, set, subscription, plan, source and group is set for what is
// judged.
type object struct {
	place
	tree *tree
	kind string
	// raw is the JSON that would be stored, stored what the gate keeps of it; nil for a kind that it does not keep.
	raw    []byte
	stored *snapshot.Object
	// refused is what the schema of the kind does not admit.
	refused apifield.ErrorList
	// hubs are the fields with hub templates, which nothing has resolved.
	hubs []string
	// cluster is set for an object that belongs to no namespace.
	cluster bool
	// identified is set once the three below have been read.
	identified                    bool
	namespace, name, generateName string

	operatorPolicy *policyv1beta2.OperatorPolicy
	constraint     *constraintv1.Constraint
	// strict are the unknown fields of the OperatorPolicy or the Constraint.
	strict []error

	policy *policyv1.Policy
	set    *policyv1beta1.PolicySet

	subscription *olm.Subscription
	plan         *olm.InstallPlan
	// source is a CatalogSource, group an OperatorGroup. Both are context as well.
	source *olm.CatalogSource
	group  *olm.OperatorGroup
	// pkg is that of a PackageManifest.
	pkg *catalog.Package
	// labels are those of a Namespace; nil for everything else.
	labels map[string]string
}

func (o *object) identify(m *olm.ObjectMeta) {
	o.name, o.generateName, o.namespace = m.Name, m.GenerateName, m.Namespace
	o.identified = true
}

// key names the object among those of its kind.
func (o *object) key() string {
	if o.cluster {
		return o.name
	}
	return o.namespace + "/" + o.name
}

// manifests is all that was read.
type manifests struct {
	// objects are in the order of the input.
	objects []*object
	// problems make the input unusable.
	problems []problem
	// foreign are the documents that are no Kubernetes objects, unjudged the objects of Opgate's, OLM's and Open Cluster Management's kinds
	// that are not judged.
	foreign  []place
	unjudged []unjudged
	// files has what plans change.
	files contents.Files
}

// unjudged is an object that is not judged.
type unjudged struct {
	place
	kind, name string
	// context is set for one that others are judged by.
	context bool
}

// loader collects objects and problems.
type loader struct {
	manifests
	// namespace is the one of objects that name none.
	namespace string
	// strict takes every document for an object.
	strict   bool
	seen     map[identity]*object
	policies []policyDocument
}

type identity struct{ kind, namespace, name string }

// load reads the objects of all inputs, and everything that is wrong with them.
func load(inputs []input, namespace string) *manifests {
	documents, problems := allDocuments(inputs)
	m := loadDocuments(documents, namespace, true)
	m.problems = append(problems, m.problems...)
	return m
}

func allDocuments(inputs []input) (all []document, problems []problem) {
	for _, in := range inputs {
		documents, faults := documentsOf(in)
		all, problems = append(all, documents...), append(problems, faults...)
	}
	return all, problems
}

func loadDocuments(documents []document, namespace string, strict bool) *manifests {
	l := &loader{namespace: namespace, strict: strict, seen: map[identity]*object{}}
	for _, d := range documents {
		l.value(d, origin{top: true})
	}
	l.allTemplates()
	return &l.manifests
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
		l.foreign = append(l.foreign, d.place)
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
			l.unjudged = append(l.unjudged, unjudged{d.place, h.kind, nameOf(d.raw), false})
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
		item := document{place: d.place, raw: raw, tree: d.tree.item("items", i)}
		item.line = item.tree.line("", d.line)
		l.value(item, from)
	}
}

// object reads an object of a kind that counts.
func (l *loader) object(d document, k *kind) {
	o := &object{place: d.place, tree: d.tree, kind: k.Kind, cluster: k.kept != nil && k.kept.ClusterScoped, raw: d.raw}
	faults := k.read(d.raw, o)
	if o.identified {
		faults = append(faults, nameFaults(o, cmp.Or(o.namespace, l.namespace))...)
	}
	if len(faults) == 0 {
		o.refused = refusedBySchema(k.GroupVersionKind, d.raw)
	}
	if ofOLM[k.GroupVersionKind] != nil { // on its own kinds Opgate has rules with the same answer
		for _, err := range o.refused {
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
		id := identity{o.kind, o.namespace, o.name}
		first, twice := l.seen[id]
		switch {
		case twice && o.labels != nil && maps.Equal(o.labels, first.labels):
			return // a namespace comes with everything that is installed in it
		case twice:
			l.problems = append(l.problems, problem{d.place, fmt.Sprintf("%s %s is there twice, first in %s", o.kind, o.key(), first.place)})
			return
		}
		l.seen[id] = o
	}
	o.hubs = hubFields(d)
	if k.unchecked && o.stored != nil && isKnown(k.Group) {
		l.unjudged = append(l.unjudged, unjudged{d.place, k.Kind, o.name, true})
	}
	l.objects = append(l.objects, o)
	if o.policy != nil {
		l.policies = append(l.policies, policyDocument{d, o})
	}
}

// store reads an object as the gate keeps it, with the namespace and the name that it gets when it is created.
func (l *loader) store(o *object, k *kind) (faults []fieldFault) {
	if k.kept == nil {
		return nil
	}
	if o.name == "" || o.namespace == "" && !o.cluster {
		namespace, name := o.namespace, o.name
		if !o.cluster {
			namespace = cmp.Or(namespace, l.namespace)
		}
		if name == "" { // it is open what the API server generates
			name = o.generateName + "*"
			for l.seen[identity{o.kind, namespace, name}] != nil {
				name += "*"
			}
		}
		strict := o.strict // those of the document as it was written
		raw, err := named(o.raw, namespace, name)
		if err != nil {
			return orFault(nil, err)
		}
		o.raw = raw
		if faults = k.read(raw, o); len(faults) > 0 {
			return faults
		}
		o.strict = strict
	}
	l.files.Add(o.raw, "")
	read := snapshot.Reader{Unreadable: func(_ *snapshot.Kind, _ types.NamespacedName, err error) { faults = orFault(faults, err) }}
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
func nameFaults(o *object, namespace string) (faults []fieldFault) {
	add := func(path, value string, problems []string) {
		for _, p := range problems {
			p, _, _ = strings.Cut(p, " (e.g.") // the pattern does not help the user
			faults = append(faults, fieldFault{path, fmt.Sprintf("%s %+q: %s", path, value, p)})
		}
	}
	switch {
	case o.name != "":
		add("metadata.name", o.name, validation.NameIsDNSSubdomain(o.name, false))
	case o.generateName != "":
		add("metadata.generateName", o.generateName, validation.NameIsDNSSubdomain(o.generateName, true))
	default:
		faults = append(faults, fieldFault{"metadata.name", "metadata.name is missing"})
	}
	switch {
	case !o.cluster:
		add("metadata.namespace", namespace, utilvalidation.IsDNS1123Label(namespace))
	case o.namespace != "":
		add("metadata.namespace", o.namespace, []string{"a " + o.kind + " belongs to no namespace; remove it"})
	}
	return faults
}

func (l *loader) fault(d document, faults []fieldFault) {
	for _, f := range faults {
		l.problems = append(l.problems, problem{d.at(d.tree.line(f.path, d.line)), f.text})
	}
}
