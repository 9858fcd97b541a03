package snapshot

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/stream"
)

// Object is the part of one object that is stored. It is immutable.
type Object struct {
	// ObjectMeta has the identity, the resourceVersion, the generation, and the times of creation and deletion.
	metav1.ObjectMeta

	kind     *Kind
	concerns Subject
	// value is what decode of the kind returned.
	value any
}

// GetObjectKind returns an empty kind: an Object is never encoded.
func (o *Object) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject returns the object, which is immutable.
func (o *Object) DeepCopyObject() runtime.Object { return o }

// Key returns the namespace and name of the object.
func (o *Object) Key() types.NamespacedName {
	return types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
}

// Kind returns the kind of the object.
func (o *Object) Kind() *Kind { return o.kind }

// compare orders objects by kind, namespace and name.
func compare(a, b *Object) int {
	return cmp.Or(cmp.Compare(a.kind.index, b.kind.index), cmp.Compare(a.Namespace, b.Namespace),
		cmp.Compare(a.Name, b.Name))
}

// identity are the fields by which an informer identifies an object.
var identity = stream.Fields{"metadata": {"name": nil, "namespace": nil, "uid": nil, "resourceVersion": nil,
	"generation": nil, "creationTimestamp": nil, "deletionTimestamp": nil,
	"annotations": {metav1.InitialEventsAnnotationKey: nil}}}

// Reader decodes objects from JSON. The zero value does not recover panics of decoding.
type Reader struct {
	// Recover runs a function and reports whether it panicked. Default: a panic is not recovered.
	Recover func(resource string, run func()) (panicked bool)
	// Unreadable is called for each object that does not decode. Default: not called.
	Unreadable func(kind *Kind, key types.NamespacedName, err error)
}

// Read returns an Object from its JSON. It is total: an object that does not decode is salvaged.
func (r *Reader) Read(kind *Kind, raw []byte) *Object {
	picked := stream.Pick(raw, identity)
	text := func(fields ...string) string {
		// the API server validates the types
		s, _, _ := unstructured.NestedString(picked, append([]string{"metadata"}, fields...)...)
		return s
	}
	o := &Object{kind: kind, ObjectMeta: metav1.ObjectMeta{Namespace: text("namespace"), Name: text("name"),
		UID: types.UID(text("uid")), ResourceVersion: text("resourceVersion")}}
	if at, err := time.Parse(time.RFC3339, text("creationTimestamp")); err == nil {
		o.CreationTimestamp = metav1.NewTime(at)
	}
	if at, err := time.Parse(time.RFC3339, text("deletionTimestamp")); err == nil {
		o.DeletionTimestamp = new(metav1.NewTime(at))
	}
	o.Generation, _, _ = unstructured.NestedInt64(picked, "metadata", "generation")
	// a bookmark, which ends the initial list of a watch
	if end := text("annotations", metav1.InitialEventsAnnotationKey); end != "" {
		o.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: end}
	}
	if err := r.decode(o, raw); err != nil {
		if r.Unreadable != nil {
			r.Unreadable(kind, o.Key(), err)
		}
		o.value = nil
		if kind.salvage != nil {
			o.value = kind.salvage(&o.ObjectMeta, raw, fmt.Errorf("decode the stored object: %w", err))
		}
	}
	o.concerns = kind.subject(o.Key())
	if stored, ok := o.value.(*storedPolicy); ok {
		o.concerns = InNamespace(stored.policy.Concerns()) // which the name does not show
	}
	return o
}

// decode returns a panic as an error: one stored object must not end the process, and after a restart the next one.
func (r *Reader) decode(o *Object, raw []byte) (err error) {
	read := func() { o.value, err = o.kind.decode(raw) }
	if r.Recover == nil {
		read()
	} else if r.Recover(o.kind.Resource, read) {
		return errors.New("opgate failed while it read the object; its log says where")
	}
	return err
}

// valueIn returns what was read of an object; the zero value if that is of another type, and for nil.
func valueIn[T any](o *Object) (value T) {
	if o != nil {
		value, _ = o.value.(T)
	}
	return value
}

// Policy returns the Policy; nil for other kinds. It must not be modified.
func (o *Object) Policy() *Policy { return valueIn[*Policy](o) }

// PolicySet returns the PolicySet; nil for other kinds. It must not be modified.
func (o *Object) PolicySet() *PolicySet { return valueIn[*PolicySet](o) }

// Definition returns what a CustomResourceDefinition defines; nil for other kinds. It must not be modified.
func (o *Object) Definition() *Definition { return valueIn[*Definition](o) }

// Migrated returns what a ClusterExtension or a ClusterObjectSet shows of an operator; nil if it shows none. It must
// not be modified.
func (o *Object) Migrated() *olm.Migrated { return valueIn[*olm.Migrated](o) }

// VirtualOperator reports whether a ClusterServiceVersion has the label of virtual operators.
func (o *Object) VirtualOperator() bool {
	csv, ok := o.value.(*olm.CSV)
	return ok && csv.IsVirtual()
}

// Copied reports whether a ClusterServiceVersion is OLM's copy of one that is installed elsewhere.
func (o *Object) Copied() bool {
	csv, ok := o.value.(*olm.CSV)
	return ok && csv.Metadata.Labels.CopiedFrom != ""
}

// CSV returns a ClusterServiceVersion. It must not be modified.
func (o *Object) CSV() *olm.CSV { return o.value.(*olm.CSV) }

// Subscription returns a Subscription; one that does not decode has only metadata. It must not be modified.
func (o *Object) Subscription() *olm.Subscription { return o.value.(*olm.Subscription) }

// OperatorGroup returns an OperatorGroup. It must not be modified.
func (o *Object) OperatorGroup() *olm.OperatorGroup { return o.value.(*olm.OperatorGroup) }

// CatalogSource returns a CatalogSource; one that does not decode has only metadata. It must not be modified.
func (o *Object) CatalogSource() *olm.CatalogSource {
	if c, ok := o.value.(*olm.CatalogSource); ok {
		return c
	}
	return &olm.CatalogSource{Metadata: o.Metadata()}
}

// Deployment returns the state of a Deployment; the zero value for one that does not decode.
func (o *Object) Deployment() Deployment {
	if d, ok := o.value.(*Deployment); ok {
		return *d
	}
	return Deployment{}
}

// Metadata returns the identity of an object, and the times of its creation and deletion.
func (o *Object) Metadata() olm.ObjectMeta { return metadataOf(&o.ObjectMeta) }

func metadataOf(m *metav1.ObjectMeta) olm.ObjectMeta {
	of := olm.ObjectMeta{Namespace: m.Namespace, Name: m.Name, UID: string(m.UID), ResourceVersion: m.ResourceVersion}
	for into, at := range map[*string]*metav1.Time{&of.CreationTimestamp: &m.CreationTimestamp,
		&of.DeletionTimestamp: m.DeletionTimestamp} {
		if !at.IsZero() {
			*into = at.UTC().Format(time.RFC3339)
		}
	}
	return of
}

// mirror has the objects of a kind as they were last read, and passes on each change. It is the store of a reflector,
// or of one after another: what the last one has read stays until the next one has listed.
type mirror struct {
	// changed is called with the states of an object before and after a change; one of them may be nil. The state
	// before a deletion has the deletion's resourceVersion, so that a snapshot without the object counts as that new.
	changed func(old, now *Object)
	// known is closed once the objects have been listed and passed on, or it is known that there can be none.
	known chan struct{}
	once  sync.Once
	// objects are written by one reflector at a time.
	objects map[types.NamespacedName]*Object
}

var _ cache.ReflectorStore = &mirror{}

func newMirror(changed func(old, now *Object)) *mirror {
	return &mirror{changed: changed, known: make(chan struct{}), objects: map[types.NamespacedName]*Object{}}
}

// Add implements cache.ReflectorStore, as all methods do.
func (m *mirror) Add(object any) error {
	m.set(object.(*Object))
	return nil
}

// Update is Add: the object may be known or not.
func (m *mirror) Update(object any) error { return m.Add(object) }

// Delete removes an object.
func (m *mirror) Delete(object any) error {
	gone := object.(*Object)
	m.remove(gone.Key(), gone.ResourceVersion)
	return nil
}

// Replace sets all objects.
func (m *mirror) Replace(objects []any, version string) error {
	listed := make(map[types.NamespacedName]bool, len(objects))
	for _, object := range objects {
		o := object.(*Object)
		listed[o.Key()] = true
		m.set(o)
	}
	for key := range m.objects {
		if !listed[key] {
			m.remove(key, version)
		}
	}
	m.markKnown()
	return nil
}

// Resync does nothing: nothing depends on time.
func (m *mirror) Resync() error { return nil }

// markKnown makes the objects known.
func (m *mirror) markKnown() { m.once.Do(func() { close(m.known) }) }

func (m *mirror) set(o *Object) {
	old := m.objects[o.Key()]
	m.objects[o.Key()] = o
	m.changed(old, o)
}

func (m *mirror) remove(key types.NamespacedName, version string) {
	if old := m.objects[key]; old != nil {
		delete(m.objects, key)
		gone := *old
		gone.ResourceVersion = version
		m.changed(&gone, nil)
	}
}
