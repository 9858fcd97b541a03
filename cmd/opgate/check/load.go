package check

import (
	"fmt"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	apifield "k8s.io/apimachinery/pkg/util/validation/field"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	policyv1 "github.com/opgate/opgate/api/policy/v1"
	policyv1beta1 "github.com/opgate/opgate/api/policy/v1beta1"
	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/snapshot"
	"github.com/opgate/opgate/snapshot/contents"
)

// object is one object of the input. One of operatorPolicy, constraint, policy, set, subscription and plan is set, or, for context,
// labels or context.
type object struct {
	place
	tree *tree
	kind string
	// raw is the JSON that would be stored, kept the kind in the store of the gate; nil for one that it does not hold.
	raw  []byte
	kept *snapshot.Kind
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
	// strict are the unknown fields of the OperatorPolicy; prepared is the OperatorPolicy made ready for judging.
	strict   []error
	prepared *rules.OperatorPolicy

	// constraint has its unknown fields in strict as well; definition is the Constraint made ready for judging.
	constraint *constraintv1.Constraint
	definition *constraint.Definition

	policy *policyv1.Policy
	set    *policyv1beta1.PolicySet

	subscription *olm.Subscription
	plan         *olm.InstallPlan
	// source is a CatalogSource, group an OperatorGroup. Both are context as well.
	source *olm.WrittenCatalogSource
	group  *olm.WrittenOperatorGroup
	// pkg is that of a PackageManifest.
	pkg *catalog.Package
	// context adds an object that is not judged to those of the cluster.
	context func(to *rules.Cluster)
	// labels are those of a Namespace; nil for everything else.
	labels map[string]string
}

func (o *object) identify(m *olm.ObjectMeta) {
	o.name, o.generateName, o.namespace = m.Name, m.GenerateName, m.Namespace
	o.identified = true
}

// displayName is the name, with the part open that the API server will generate.
func (o *object) displayName() string {
	if o.name == "" {
		return o.generateName + "*"
	}
	return o.name
}

// key names the object among those of its kind.
func (o *object) key() string {
	if o.cluster {
		return o.displayName()
	}
	return o.namespace + "/" + o.displayName()
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
	l.files.Add(d.raw, l.namespace)
	k, err := kindOf(h.apiVersion, h.kind)
	switch {
	case err != nil:
		l.fault(d, []fieldFault{{"kind", err.Error()}})
	case k != nil && (!k.unchecked || !h.list):
		l.object(d, k)
	case h.list:
		l.list(d, &h, from.depth+1)
	case isKnown(groupOf(h.apiVersion)):
		l.unjudged = append(l.unjudged, unjudged{d.place, h.kind, nameOf(d.raw), false})
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
	o := &object{place: d.place, tree: d.tree, kind: k.Kind, cluster: k.cluster, raw: d.raw, kept: keptAs(k)}
	faults := k.read(d.raw, o)
	if o.identified {
		if o.namespace == "" && !o.cluster {
			o.setNamespace(l.namespace)
		}
		faults = append(faults, nameFaults(o)...)
	}
	if len(faults) == 0 {
		o.refused = refusedBySchema(k.GroupVersionKind, d.raw)
	}
	if ofOLM[k.GroupVersionKind] != nil { // on its own kinds Opgate has rules with the same answer
		for _, err := range o.refused {
			faults = append(faults, fieldFault{err.Field, err.Error()})
		}
	}
	l.fault(d, faults)
	if len(faults) > 0 {
		return
	}
	if o.name != "" {
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
	if o.context != nil && o.source == nil && o.group == nil && isKnown(k.Group) {
		l.unjudged = append(l.unjudged, unjudged{d.place, k.Kind, o.displayName(), true})
	}
	if o.operatorPolicy != nil {
		o.prepared = rules.NewOperatorPolicy(o.operatorPolicy)
	}
	if o.constraint != nil {
		o.definition = rules.NewDefinition(o.constraint, o.strict)
	}
	l.objects = append(l.objects, o)
	if o.policy != nil {
		l.policies = append(l.policies, policyDocument{d, o})
	}
}

// setNamespace puts an object into a namespace.
func (o *object) setNamespace(namespace string) {
	o.namespace = namespace
	switch {
	case o.operatorPolicy != nil:
		o.operatorPolicy.Namespace = namespace
	case o.policy != nil:
		o.policy.Namespace = namespace
	case o.set != nil:
		o.set.Namespace = namespace
	case o.subscription != nil:
		o.subscription.Metadata.Namespace = namespace
	case o.plan != nil:
		o.plan.Metadata.Namespace = namespace
	case o.source != nil:
		o.source.Metadata.Namespace = namespace
	case o.group != nil:
		o.group.Metadata.Namespace = namespace
	}
}

// nameFaults returns what is wrong with the name and the namespace; the API server accepts no other.
func nameFaults(o *object) (faults []fieldFault) {
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
		add("metadata.namespace", o.namespace, utilvalidation.IsDNS1123Label(o.namespace))
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
