package gate

import (
	"bytes"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "sigs.k8s.io/json"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/internal/apijson"
	"github.com/opgate/opgate/olm"
)

// TestStoredAsJudged sends the API server JSON that decoders read in different ways. Whatever it stores, the gate reads
// the same of the review as OLM reads of the stored object, and refuses exactly the bodies of which something forbidden
// would be stored. It has some bodies for each way of writing: internal/apijson compares the decoders.
func TestStoredAsJudged(t *testing.T) {
	e := harness.Shared(t)
	s := &semantics{
		Env: e, free: e.NewNamespace(t), governed: e.NewNamespace(t), admin: e.Clients[cluster.Admin],
		first: map[string]*unstructured.Unstructured{}, last: map[string][]byte{},
	}
	e.Put(t, harness.OperatorPolicy(s.governed))
	for _, namespace := range []string{s.free, s.governed} {
		e.Put(t, harness.Subscription(namespace, "present", harness.GoodCatalog, "Manual"))
		e.Put(t, harness.InstallPlan(namespace, "present", harness.ForbiddenVersion))
	}
	e.Put(t, harness.Object(presentCSV, s.free))
	e.Put(t, harness.Object(presentPolicy, s.free))
	e.Sync(t)
	s.recorder = startRecorder(t, e, s.free)
	for _, w := range writes {
		t.Run(w.name, func(t *testing.T) {
			stored, bodies := 0, w.bodies(t)
			for _, body := range bodies {
				if s.send(t, &w, body) {
					stored++
				}
			}
			t.Logf("%d bodies, %d stored", len(bodies), stored)
			if stored < len(bodies)/4 {
				t.Errorf("of %d bodies only %d are stored, which shows little", len(bodies), stored)
			}
		})
	}
}

type semantics struct {
	*harness.Env
	recorder *recorder
	admin    *harness.Client
	// free is a namespace without policies, of which reviews are recorded; governed has one.
	free, governed string
	// first and last are the objects that writes change, by namespace and kind: as they were first, and as they are
	// stored now.
	first map[string]*unstructured.Unstructured
	last  map[string][]byte
}

// write is a way to write an object.
type write struct {
	name, kind, subresource string
	method, contentType     string
	query                   url.Values
	// body has NAMESPACE, NAME and VERSION in place of the object's; edits are what is replaced in it, and by what.
	body  string
	edits []edit
	// compare compares the review and the object stored after and before it.
	compare func(t *testing.T, review, stored, before []byte)
	// forbidden reports whether the policy forbids what is stored, and allowed whether nothing refuses it. Without them
	// the body is sent only to the namespace without policies.
	forbidden, allowed func(stored []byte) bool
}

// edit replaces a part of a body.
type edit struct{ old, replacement string }

// bodies are the body and what the edits make of it.
func (w *write) bodies(t *testing.T) []string {
	t.Helper()
	bodies := []string{w.body}
	for _, edit := range w.edits {
		body := strings.Replace(w.body, edit.old, edit.replacement, 1)
		if body == w.body {
			t.Fatalf("%q is not in %s", edit.old, w.body)
		}
		bodies = append(bodies, body)
	}
	return bodies
}

// request is the write of a body.
func (w *write) request(body, namespace string, present *unstructured.Unstructured) harness.Request {
	name, version := "created", ""
	path := harness.PathOf(harness.Resources[w.kind], namespace, "", "")
	if present != nil {
		name, version = present.GetName(), present.GetResourceVersion()
		path = harness.PathOf(harness.Resources[w.kind], namespace, name, w.subresource)
	}
	body = strings.NewReplacer("NAMESPACE", namespace, "NAME", name, "VERSION", version).Replace(body)
	return harness.Request{Method: w.method, Path: path, Query: w.query, ContentType: w.contentType, Body: []byte(body)}
}

// present returns the object that a write changes, and its JSON; nil for a write that creates.
func (s *semantics) present(t *testing.T, w *write, namespace string) (*unstructured.Unstructured, []byte) {
	t.Helper()
	if w.method == http.MethodPost {
		return nil, nil
	}
	key := namespace + "/" + w.kind
	if s.last[key] == nil {
		s.last[key] = s.must(t, harness.Request{Method: http.MethodGet,
			Path: harness.PathOf(harness.Resources[w.kind], namespace, "present", "")})
		s.first[key] = harness.Answer{Body: s.last[key]}.Object()
	}
	return harness.Answer{Body: s.last[key]}.Object(), s.last[key]
}

// must makes a request that succeeds.
func (s *semantics) must(t *testing.T, request harness.Request) []byte {
	t.Helper()
	answer := s.admin.Must(t, request)
	if !answer.OK() {
		t.Fatalf("%s %s: %s", request.Method, request.Path, answer)
	}
	return answer.Body
}

// send writes a body and reports whether it is stored.
func (s *semantics) send(t *testing.T, w *write, body string) bool {
	t.Helper()
	present, before := s.present(t, w, s.free)
	s.recorder.take()
	answer := s.admin.Must(t, w.request(body, s.free, present))
	review := s.recorder.take()
	if !answer.OK() {
		return false
	}
	written := answer.Object()
	stored := s.must(t, harness.Request{Method: http.MethodGet,
		Path: harness.PathOf(harness.Resources[w.kind], s.free, written.GetName(), "")})
	if review == nil {
		t.Fatalf("%.5000q is stored without a review", body)
	}
	w.compare(t, review, stored, before)
	if w.forbidden != nil {
		s.judge(t, w, body, stored)
	}
	if t.Failed() {
		t.Fatalf("this is about %.5000q, answered with %s", body, answer)
	}
	s.reset(t, w, stored)
	return true
}

// reset removes what was created, and writes back what was changed.
func (s *semantics) reset(t *testing.T, w *write, stored []byte) {
	t.Helper()
	now := harness.Answer{Body: stored}.Object()
	if w.method == http.MethodPost {
		if err := s.admin.Of(now).Delete(t.Context(), now.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		return
	}
	key := s.free + "/" + w.kind
	clean := s.first[key].DeepCopy()
	if !equality.Semantic.DeepEqual(contents(clean), contents(now)) {
		clean.SetManagedFields(nil)
		clean.SetResourceVersion(now.GetResourceVersion())
		stored = s.must(t, harness.Request{Method: http.MethodPut, ContentType: typeJSON,
			Body: []byte(harness.Normal(clean.Object)),
			Path: harness.PathOf(harness.Resources[w.kind], s.free, "present", w.subresource)})
	}
	s.last[key] = stored
}

// contents are the parts of an object that bodies change.
func contents(u *unstructured.Unstructured) []any {
	return []any{u.GetLabels(), u.GetAnnotations(), u.Object["spec"], u.Object["status"]}
}

// judge sends the body where a policy governs, without storing it, and compares the verdict with what is stored where
// none does.
func (s *semantics) judge(t *testing.T, w *write, body string, stored []byte) {
	t.Helper()
	present, _ := s.present(t, w, s.governed)
	request := w.request(body, s.governed, present)
	request.Query = harness.MergeQuery(w.query, url.Values{"dryRun": {"All"}})
	switch answer := s.admin.Must(t, request); {
	case w.forbidden(stored) && answer.Refused == "":
		t.Errorf("WRONG ALLOW: it is answered with %s, and stored is %s", answer, stored)
	case w.allowed(stored) && !answer.OK():
		t.Errorf("it is answered with %s, and stored is %s", answer, stored)
	}
}

// readReview is what is read of a review.
type readReview[T any] struct {
	Request struct {
		Operation string `json:"operation"`
		Object    *T     `json:"object"`
		OldObject *T     `json:"oldObject"`
	} `json:"request"`
}

var everyField = []cmp.Option{cmp.Exporter(func(reflect.Type) bool { return true }), cmpopts.EquateErrors()}

// alike returns a comparison of what the gate reads of a review, and of the stored objects. The resource version is set
// when an object is stored. OLM's own type is read by the API server's decoder, and must hold the same.
func alike[T, Own any](
	meta func(*T) *olm.ObjectMeta, own func(*T, *Own) (got, want fields),
) func(t *testing.T, review, stored, before []byte) {
	return func(t *testing.T, review, stored, before []byte) {
		t.Helper()
		// The API server sends -0.0 as -0, which it reads as 0 once it is stored: only digests of the text depend on
		// it.
		judged := readAlike[readReview[T]](t, bytes.ReplaceAll(review, []byte(":-0,"), []byte(":0,")))
		now := readAlike[T](t, stored)
		if judged == nil || now == nil || judged.Request.Object == nil {
			t.Errorf("a review or an object that is stored cannot be read: %s", review)
			return
		}
		if before != nil {
			if diff := cmp.Diff(readAlike[T](t, before), judged.Request.OldObject, everyField...); diff != "" {
				t.Errorf("stored before (-) and oldObject of the review (+):\n%s", diff)
			}
		}
		meta(now).ResourceVersion, meta(judged.Request.Object).ResourceVersion = "", ""
		if diff := cmp.Diff(now, judged.Request.Object, everyField...); diff != "" {
			t.Errorf("stored (-) and object of the review (+):\n%s", diff)
		}
		var theirs Own
		if kjson.UnmarshalCaseSensitivePreserveInts(stored, &theirs) != nil {
			return // OLM cannot read it, since the schema allows more than its type, and does nothing with it
		}
		got, want := own(now, &theirs)
		if diff := cmp.Diff(want, got, everyField...); diff != "" {
			t.Errorf("of the stored object OLM reads (-) and the gate (+):\n%s", diff)
		}
	}
}

// readAlike reads JSON as the gate does and as the API server does.
func readAlike[T any](t *testing.T, raw []byte) *T {
	t.Helper()
	var got, want T
	errGot, errWant := apijson.Unmarshal(raw, &got), kjson.UnmarshalCaseSensitivePreserveInts(raw, &want)
	if (errGot == nil) != (errWant == nil) {
		t.Errorf("%T: error %v, want %v", got, errGot, errWant)
	}
	if errGot != nil {
		return nil
	}
	if diff := cmp.Diff(want, got, everyField...); diff != "" {
		t.Errorf("%T: the API server's decoder (-) and the gate's (+):\n%s", got, diff)
	}
	return &got
}
