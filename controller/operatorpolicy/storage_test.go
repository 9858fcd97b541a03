package operatorpolicy_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"
	"k8s.io/apimachinery/pkg/util/uuid"
	kjson "sigs.k8s.io/json"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/snapshot"
)

// storage is the transport of a client, and stores objects as an API server does: with resourceVersions, generations,
// preconditions, finalizers, status subresources and watches. It does nothing else of an API server: what a test on it
// shows about admission, conversion, garbage collection or rights is worth nothing.
type storage struct {
	// kinds are those that are stored, by API path and resource; in those of plain the status is a field like others.
	kinds map[string]schema.GroupVersionKind
	plain []string
	// complete sets the defaults of an object.
	complete func(u *unstructured.Unstructured)

	mu      sync.Mutex
	objects map[string]*unstructured.Unstructured
	// applied is the last applied configuration of each object.
	applied map[string][]byte
	// events are all changes, in the order of their resourceVersions, which begin with 1.
	events []stored
	// changed is closed, and replaced, with each event.
	changed chan struct{}
	// stalled is the resource whose watches are sent nothing; "" for none.
	stalled string
	// refused is the resource whose status cannot be written; "" for none.
	refused string
}

// refuse answers writes of the status of a resource with an error, until it is called for another; "" for none.
func (s *storage) refuse(resource string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused = resource
}

// stall sends nothing more to the watches of a resource, until it is called for another; "" for none.
func (s *storage) stall(resource string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stalled = resource
	close(s.changed)
	s.changed = make(chan struct{})
}

// newStorage returns a storage of the kinds of the snapshot, and of those that controllers read and write besides, with
// a mapper of these. Complete sets the defaults of an object.
func newStorage(complete func(*unstructured.Unstructured)) (*storage, meta.RESTMapper) {
	s := &storage{
		kinds:    map[string]schema.GroupVersionKind{},
		complete: complete,
		objects:  map[string]*unstructured.Unstructured{},
		applied:  map[string][]byte{},
		changed:  make(chan struct{}),
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	all := []schema.GroupVersionKind{corev1.SchemeGroupVersion.WithKind("Event"),
		olm.PackageManifests.GroupVersion().WithKind(olm.KindPackageManifest)}
	for _, kind := range snapshot.Kinds() {
		all = append(all, kind.GroupVersionKind)
	}
	for _, gvk := range all {
		resource, scope := gvk.GroupVersion().WithResource(strings.ToLower(gvk.Kind)+"s"), meta.RESTScopeNamespace
		if kind := snapshot.KindOf(gvk); kind != nil {
			resource = kind.GroupVersionResource()
			if kind.ClusterScoped {
				scope = meta.RESTScopeRoot
			}
		}
		mapper.AddSpecific(gvk, resource, gvk.GroupVersion().WithResource(strings.ToLower(gvk.Kind)), scope)
		path := "apis/" + gvk.GroupVersion().String()
		if gvk.Group == "" {
			path = "api/" + gvk.Version
		}
		path += "/" + resource.Resource
		s.kinds[path] = gvk
		if slices.Contains([]string{"PackageManifest", "ConfigMap", "Event"}, gvk.Kind) {
			s.plain = append(s.plain, path)
		}
	}
	return s, mapper
}

// stored is a change of an object.
type stored struct {
	event  string
	kind   string
	object *unstructured.Unstructured
}

// target is what a request is about.
type target struct {
	// kind is the key of storage.kinds.
	kind, namespace, name, subresource string
	resource                           schema.GroupResource
}

func (t *target) key() string { return t.kind + " " + t.namespace + "/" + t.name }

// parse reads a path such as /apis/GROUP/VERSION/namespaces/NAMESPACE/RESOURCE/NAME/status.
func parse(path string) target {
	segments := append(strings.Split(strings.Trim(path, "/"), "/"), "", "", "", "")
	n := 2
	t := target{}
	if segments[0] == "apis" {
		n, t.resource.Group = 3, segments[1]
	}
	version := strings.Join(segments[:n], "/")
	rest := segments[n:]
	if rest[0] == "namespaces" && rest[2] != "" {
		t.namespace, rest = rest[1], rest[2:]
	}
	t.resource.Resource, t.name, t.subresource = rest[0], rest[1], rest[2]
	t.kind = version + "/" + t.resource.Resource
	return t
}

// RoundTrip answers a request.
func (s *storage) RoundTrip(r *http.Request) (*http.Response, error) {
	t := parse(r.URL.Path)
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, served := s.kinds[t.kind]; !served {
		return answer(r, nil, apierrors.NewGenericServerResponse(http.StatusNotFound, r.Method, t.resource, "", "", 0,
			true))
	}
	if r.URL.Query().Has("watch") {
		return s.watch(r, t), nil
	}
	if r.Method != http.MethodGet && t.subresource == "status" && t.resource.Resource == s.refused {
		return answer(r, nil, apierrors.NewInternalError(errors.New("the status is not written")))
	}
	object, err := s.do(r, t, body)
	return answer(r, object, err)
}

func (s *storage) do(r *http.Request, t target, body []byte) (any, error) {
	current := s.objects[t.key()]
	switch {
	case r.Method == http.MethodPost:
		return s.create(t, body)
	case t.name == "" && r.Method == http.MethodGet:
		return s.list(r, t)
	case t.name == "" && r.Method == http.MethodDelete:
		for _, u := range s.selected(r, t) {
			one := t
			one.name = u.GetName()
			s.delete(one, u)
		}
		return &metav1.Status{Status: metav1.StatusSuccess}, nil
	case r.Header.Get("Content-Type") == string(types.ApplyYAMLPatchType):
		return s.apply(t, current, body)
	case current == nil:
		return nil, apierrors.NewNotFound(t.resource, t.name)
	case r.Method == http.MethodPut:
		u, err := decode(body)
		if err != nil {
			return nil, err
		}
		return s.update(t, current, u)
	case r.Method == http.MethodPatch:
		return s.patch(t, current, types.PatchType(r.Header.Get("Content-Type")), body)
	case r.Method == http.MethodDelete:
		options := &metav1.DeleteOptions{}
		if err := json.Unmarshal(body, options); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		p := cmp.Or(options.Preconditions, &metav1.Preconditions{})
		// by another client, moments before
		if annotations := current.GetAnnotations(); annotations[writtenMeanwhile] != "" {
			written := current.DeepCopy()
			delete(annotations, writtenMeanwhile)
			written.SetAnnotations(annotations)
			current = s.store(t, "MODIFIED", written)
		}
		uid, version := current.GetUID(), current.GetResourceVersion()
		if p.UID != nil && *p.UID != uid || p.ResourceVersion != nil && *p.ResourceVersion != version {
			return nil, apierrors.NewConflict(t.resource, t.name, errors.New("the preconditions are not met"))
		}
		s.delete(t, current)
	}
	return current, nil
}

// writtenMeanwhile is an annotation of an object that another client writes when it is to be deleted.
const writtenMeanwhile = "test/written-meanwhile"

func answer(r *http.Request, object any, err error) (*http.Response, error) {
	code := http.StatusOK
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		of := status.Status()
		of.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		object, code = of, int(of.Code)
	} else if err != nil {
		return nil, err
	}
	u, one := object.(*unstructured.Unstructured)
	if one && strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata") {
		object = map[string]any{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
			"metadata": u.Object["metadata"]}
	}
	raw, err := json.Marshal(object)
	return respond(r, code, io.NopCloser(bytes.NewReader(raw))), err
}

func respond(r *http.Request, code int, body io.ReadCloser) *http.Response {
	return &http.Response{StatusCode: code, Status: http.StatusText(code), Request: r, Body: body, ContentLength: -1,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{"Content-Type": {"application/json"}}}
}

// selected returns the objects that a request for several selects, in a fixed order.
func (s *storage) selected(r *http.Request, t target) (found []*unstructured.Unstructured) {
	for key, u := range s.objects {
		if strings.HasPrefix(key, t.kind+" ") && matches(r, t, u) {
			found = append(found, u)
		}
	}
	slices.SortFunc(found, func(a, b *unstructured.Unstructured) int {
		return strings.Compare(a.GetNamespace()+"/"+a.GetName(), b.GetNamespace()+"/"+b.GetName())
	})
	return found
}

func matches(r *http.Request, t target, u *unstructured.Unstructured) bool {
	query := r.URL.Query()
	byLabels, wrongLabels := labels.Parse(query.Get("labelSelector"))
	byFields, wrongFields := fields.ParseSelector(query.Get("fieldSelector"))
	return wrongLabels == nil && wrongFields == nil && (t.namespace == "" || t.namespace == u.GetNamespace()) &&
		byLabels.Matches(labels.Set(u.GetLabels())) && byFields.Matches(fields.Set{"metadata.name": u.GetName()})
}

func (s *storage) version() string { return strconv.Itoa(len(s.events)) }

func (s *storage) list(r *http.Request, t target) (any, error) {
	gvk := s.kinds[t.kind]
	items := []any{}
	for _, u := range s.selected(r, t) {
		items = append(items, u.Object)
	}
	return map[string]any{"apiVersion": gvk.GroupVersion().String(), "kind": gvk.Kind + "List",
		"metadata": map[string]any{"resourceVersion": s.version()}, "items": items}, nil
}

// store stores a new state of an object, or its end.
func (s *storage) store(t target, event string, u *unstructured.Unstructured) *unstructured.Unstructured {
	s.events = append(s.events, stored{event: event, kind: t.kind, object: u})
	u.SetResourceVersion(s.version())
	s.objects[t.key()] = u
	if event == "DELETED" {
		delete(s.objects, t.key())
		delete(s.applied, t.key())
	}
	close(s.changed)
	s.changed = make(chan struct{})
	return u
}

func decode(body []byte) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(body, &u.Object); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return u, nil
}

func (s *storage) create(t target, body []byte) (any, error) {
	u, err := decode(body)
	if err != nil {
		return nil, err
	}
	if t.name = u.GetName(); t.name == "" {
		t.name = u.GetGenerateName() + strconv.Itoa(len(s.events))
		u.SetName(t.name)
	}
	if s.objects[t.key()] != nil {
		return nil, apierrors.NewAlreadyExists(t.resource, t.name)
	}
	if namespace := parse("/api/v1/namespaces/" + t.namespace); t.namespace != "" && s.objects[namespace.key()] == nil {
		return nil, apierrors.NewNotFound(namespace.resource, t.namespace)
	}
	if u.SetNamespace(t.namespace); !slices.Contains(s.plain, t.kind) {
		delete(u.Object, "status")
	}
	u.SetUID(uuid.NewUUID())
	u.SetGeneration(1)
	u.SetCreationTimestamp(metav1.NewTime(time.Now()))
	s.complete(u)
	return s.store(t, "ADDED", u), nil
}

// apply applies a configuration, of which the fields that it had before and has no more are removed.
func (s *storage) apply(t target, current *unstructured.Unstructured, body []byte) (any, error) {
	last := s.applied[t.key()]
	if s.applied[t.key()] = body; current == nil {
		return s.create(t, body)
	}
	before, err := json.Marshal(current)
	if err != nil {
		return nil, err
	}
	patch, err := jsonmergepatch.CreateThreeWayJSONMergePatch(last, body, before)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return s.patch(t, current, types.MergePatchType, patch)
}

func (s *storage) patch(t target, current *unstructured.Unstructured, kind types.PatchType, patch []byte) (any, error) {
	before, err := json.Marshal(current)
	if err != nil {
		return nil, err
	}
	var after []byte
	switch kind {
	case types.MergePatchType:
		after, err = jsonpatch.MergePatch(before, patch)
	case types.JSONPatchType:
		var operations jsonpatch.Patch
		if operations, err = jsonpatch.DecodePatch(patch); err == nil {
			after, err = operations.Apply(before)
		}
	default:
		err = fmt.Errorf("patches of type %q are not known", kind)
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	u, err := decode(after)
	if err != nil {
		return nil, err
	}
	return s.update(t, current, u)
}

// update replaces the part of an object that a write may change, if it applies to the state that is stored.
func (s *storage) update(t target, current, u *unstructured.Unstructured) (any, error) {
	if u.GetResourceVersion() != current.GetResourceVersion() || u.GetUID() != current.GetUID() {
		return nil, apierrors.NewConflict(t.resource, t.name, errors.New("the object has been modified"))
	}
	if t.subresource == "status" {
		next := current.DeepCopy()
		if next.Object["status"] = u.Object["status"]; u.Object["status"] == nil {
			delete(next.Object, "status")
		}
		u = next
	} else if !slices.Contains(s.plain, t.kind) {
		if u.Object["status"] = current.Object["status"]; current.Object["status"] == nil {
			delete(u.Object, "status")
		}
	}
	s.complete(u)
	if equality.Semantic.DeepEqual(u.Object, current.Object) {
		return current, nil
	}
	if !equality.Semantic.DeepEqual(content(u), content(current)) {
		u.SetGeneration(current.GetGeneration() + 1)
	}
	if u.GetDeletionTimestamp() != nil && len(u.GetFinalizers()) == 0 {
		return s.store(t, "DELETED", u), nil
	}
	return s.store(t, "MODIFIED", u), nil
}

// content returns an object without its metadata and status.
func content(u *unstructured.Unstructured) map[string]any {
	all := map[string]any{}
	for field, value := range u.Object {
		if field != "metadata" && field != "status" {
			all[field] = value
		}
	}
	return all
}

func (s *storage) delete(t target, current *unstructured.Unstructured) {
	u := current.DeepCopy()
	switch {
	case len(u.GetFinalizers()) == 0:
		s.store(t, "DELETED", u)
	case u.GetDeletionTimestamp() == nil:
		u.SetDeletionTimestamp(new(metav1.NewTime(time.Now())))
		u.SetGeneration(u.GetGeneration() + 1)
		s.store(t, "MODIFIED", u)
	}
}

// watch answers a watch.
func (s *storage) watch(r *http.Request, t target) *http.Response {
	w := &watching{storage: s, request: r, target: t, closed: make(chan struct{})}
	if seconds, err := strconv.Atoi(r.URL.Query().Get("timeoutSeconds")); err == nil {
		w.timeout = time.After(time.Duration(seconds) * time.Second)
	}
	w.next, _ = strconv.Atoi(r.URL.Query().Get("resourceVersion")) // "" is from now on, after the initial events
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		for _, u := range s.selected(r, t) {
			w.write("ADDED", u.Object)
		}
		w.next = len(s.events)
		w.write("BOOKMARK", map[string]any{"metadata": map[string]any{"resourceVersion": s.version(),
			"annotations": map[string]any{metav1.InitialEventsAnnotationKey: "true"}}})
	}
	return respond(r, http.StatusOK, w)
}

// watching is the body of the answer to a watch.
type watching struct {
	storage *storage
	request *http.Request
	target  target
	// next is the index of the next event, unread is what is written already.
	next   int
	unread bytes.Buffer
	closed chan struct{}
	// timeout ends the watch.
	timeout <-chan time.Time
	once    sync.Once
}

func (w *watching) write(event string, object any) {
	if err := json.NewEncoder(&w.unread).Encode(map[string]any{"type": event, "object": object}); err != nil {
		panic(err) // it was decoded from JSON
	}
}

// Read implements io.Reader.
func (w *watching) Read(p []byte) (int, error) {
	for w.unread.Len() == 0 {
		w.storage.mu.Lock()
		changed, timeout := w.storage.changed, w.timeout
		stalled := w.storage.stalled == w.target.resource.Resource
		if stalled {
			timeout = nil
		}
		for ; w.next < len(w.storage.events) && !stalled; w.next++ {
			if e := w.storage.events[w.next]; e.kind == w.target.kind && matches(w.request, w.target, e.object) {
				w.write(e.event, e.object.Object)
			}
		}
		w.storage.mu.Unlock()
		if w.unread.Len() > 0 {
			break
		}
		select {
		case <-changed:
		case <-w.closed:
			return 0, io.EOF
		case <-timeout:
			return 0, io.EOF
		case <-w.request.Context().Done():
			return 0, w.request.Context().Err()
		}
	}
	return w.unread.Read(p)
}

// Close implements io.Closer.
func (w *watching) Close() error {
	w.once.Do(func() { close(w.closed) })
	return nil
}
