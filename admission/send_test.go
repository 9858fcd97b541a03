package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/admission/olmidentity"
	"github.com/opgate/opgate/admission/scenario"
	policyv1 "github.com/opgate/opgate/api/policy/v1"
	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/internal/inflight"
	"github.com/opgate/opgate/internal/panics"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/snapshot"
	"github.com/opgate/opgate/snapshot/contents"
)

// olmUser is the name that OLM writes as in tests.
const olmUser = "system:serviceaccount:olm:olm-operator-serviceaccount"

// overrideBy lets the users it lists do what is asked about: override every policy, and create whatever a template is.
// RBAC itself is the API server's; package e2e asks it for real.
type overrideBy []string

func (o overrideBy) May(_ context.Context, user *authenticationv1.UserInfo, _ *authorizationv1.ResourceAttributes) (bool, error) {
	return slices.Contains(o, user.Username), nil
}

// byAPIServer takes every request for one of the API server.
func byAPIServer(*http.Request) bool { return true }

func newGate(t testing.TB, store *snapshot.Store, authorizer Authorizer) *Gate {
	t.Helper()
	return newGateWithCatalogs(t, store, authorizer, nil)
}

// optionsOf completes options that say at least Store with what every gate needs.
func optionsOf(o Options) Options {
	registry := prometheus.NewRegistry()
	o.Metrics = NewMetrics(registry, o.Store, time.Now)
	o.Budget, o.Panics = inflight.NewBudget(registry), panics.NewRecorder(registry, logr.Discard())
	o.OLM, o.Log, o.Now = verifiedOLM(), logr.Discard(), time.Now
	o.Key = func() []byte { return testKey }
	if o.Authorizer == nil {
		o.Authorizer = overrideBy{}
	}
	return o
}

// newGateWithCatalogs returns a gate that knows the channels of catalogs.
func newGateWithCatalogs(t testing.TB, store *snapshot.Store, authorizer Authorizer, catalogs Catalogs) *Gate {
	t.Helper()
	gate, err := New(optionsOf(Options{Store: store, Authorizer: authorizer, Authenticated: byAPIServer, Catalogs: catalogs}))
	if err != nil {
		t.Fatal(err)
	}
	return gate
}

// olmUID is the UID of OLM's service account in tests.
const olmUID = "3f6c1f0e-0c9b-4d0c-9d5e-7d3e5a4f5b11"

// verifiedOLM is OLM's identity as it is once it was verified.
func verifiedOLM() *olmidentity.Identity {
	olm := olmidentity.New(olmidentity.Account{Namespace: "olm", Name: "olm-operator-serviceaccount"})
	olm.Set(olmidentity.State{Reason: olmidentity.Trusted, UID: olmUID})
	return olm
}

// testKey signs the marks of Policies in tests.
var testKey = []byte("a key of 32 bytes, for tests only")

// marked is a Policy as it is stored after a user with all rights has written it. Other objects stay as they are.
func marked(t testing.TB, u *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	if u.GetKind() != "Policy" {
		return u
	}
	p := &policyv1.Policy{}
	if err := json.Unmarshal(raw(t, u), p); err != nil {
		t.Fatal(err)
	}
	digest, err := dependency.DigestOf(p)
	if err != nil {
		t.Fatal(err)
	}
	u = u.DeepCopy()
	annotations := u.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[dependency.AnnotationVerified] = dependency.Sign(testKey, p, digest, dependency.Verification{})
	u.SetAnnotations(annotations)
	return u
}

// versions are those of the cluster in tests.
var versions = scenario.Versions{Kubernetes: "1.36.2", OpenShift: "4.19.3"}

// storeOf holds a snapshot of objects, read by the same code as the feed's. The namespaces of objects exist, with the
// labels that they have in the objects, if they are there.
func storeOf(t testing.TB, objects ...*unstructured.Unstructured) *snapshot.Store {
	t.Helper()
	return storeWith(t, nil, objects...)
}

// storeWith is storeOf with packages of catalogs.
func storeWith(t testing.TB, packages rules.Packages, objects ...*unstructured.Unstructured) *snapshot.Store {
	t.Helper()
	return storeRead(t, packages, func(kind *snapshot.Kind, u *unstructured.Unstructured) *snapshot.Object {
		reader := snapshot.Reader{Unreadable: func(_ *snapshot.Kind, _ types.NamespacedName, err error) { t.Fatal(err) }}
		return reader.Read(kind, raw(t, u))
	}, objects...)
}

// storeRead is storeWith with a function that reads the objects.
func storeRead(t testing.TB, packages rules.Packages, read func(*snapshot.Kind, *unstructured.Unstructured) *snapshot.Object,
	objects ...*unstructured.Unstructured) *snapshot.Store {
	t.Helper()
	var all []*snapshot.Object
	for _, name := range namespacesOf(objects) {
		namespace := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": name}}}
		all = append(all, read(snapshot.Namespaces, labelledByName(namespace)))
	}
	kinds := snapshot.Kinds()
	var files contents.Files
	for _, u := range objects {
		files.Add(raw(t, u), "")
		if u.GetKind() == "ConfigMap" && !isRecord(u.GetName()) {
			continue // is read for the plan that refers to it
		}
		i := slices.IndexFunc(kinds, func(k *snapshot.Kind) bool { return k.Kind == u.GetKind() && k.Readers != snapshot.Leader })
		if i < 0 {
			t.Fatalf("kind %s is not one that the gate follows", u.GetKind())
		}
		if u.GetKind() == "Namespace" {
			u = labelledByName(u)
		}
		all = append(all, read(kinds[i], u))
	}
	builder := snapshot.Builder{Packages: packages, Changes: files.Changes}
	builder.Put(time.Time{}, all...)
	return snapshot.NewStore(builder.SetCluster(time.Time{}, state.Cluster{Version: versions.Kubernetes, OpenShift: versions.OpenShift}))
}

// labelledByName is a namespace with the label that the API server sets.
func labelledByName(namespace *unstructured.Unstructured) *unstructured.Unstructured {
	namespace = namespace.DeepCopy()
	labels := namespace.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels["kubernetes.io/metadata.name"] = namespace.GetName()
	namespace.SetLabels(labels)
	return namespace
}

func namespacesOf(objects []*unstructured.Unstructured) []string {
	var names []string
	for _, u := range objects {
		if name := u.GetNamespace(); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// isRecord reports whether a ConfigMap of this name, in Opgate's own namespace, is followed.
func isRecord(name string) bool {
	_, installed := rules.RecordedNamespace(name)
	return installed || name == catalog.RecordsName
}

// resourceOf is the resource of an object: its kind in lower case and in the plural.
func resourceOf(u *unstructured.Unstructured) string {
	kind := strings.ToLower(u.GetKind())
	if stem, found := strings.CutSuffix(kind, "y"); found {
		return stem + "ies"
	}
	return kind + "s"
}

// outcome is what a user sees of a write, and what is stored of it.
type outcome struct {
	allowed  bool
	message  string
	warnings []string // sorted
	object   []byte
}

// send passes a write through the mutating and then the validating endpoint, as the API server does. The gate is not
// asked about kinds that it has none for.
func send(t *testing.T, gate *Gate, user string, status bool, old, object *unstructured.Unstructured) outcome {
	t.Helper()
	if user == "olm" {
		user = olmUser
	}
	resource := resourceOf(object)
	switch {
	case user != olmUser || old != nil:
	case resource == "subscriptions":
		resource = "generated-subscriptions"
	case resource == "clusterserviceversions":
		resource = "steps-clusterserviceversions"
	}
	validate := "/validate/" + resource
	if status {
		validate += "-status"
	}
	got := outcome{object: raw(t, object), allowed: true}
	handlers := gate.Handlers()
	for _, path := range []string{"/mutate/" + resource, validate} {
		handler, ok := handlers[path]
		if !ok || status && path != validate {
			continue
		}
		answer := post(t, handler, reviewOf(t, user, status, old, got.object))
		got.warnings = append(got.warnings, answer.Warnings...)
		got.allowed = answer.Allowed
		if !answer.Allowed {
			got.message = answer.Result.Message
			break
		}
		if answer.Patch != nil {
			patch, err := jsonpatch.DecodePatch(answer.Patch)
			if err != nil {
				t.Fatal(err)
			}
			if got.object, err = patch.Apply(got.object); err != nil {
				t.Fatal(err)
			}
		}
	}
	slices.Sort(got.warnings)
	got.warnings = slices.Compact(got.warnings)
	return got
}

// reviewOf is the body that the API server sends for a write.
func reviewOf(t testing.TB, user string, status bool, old *unstructured.Unstructured, object []byte) []byte {
	t.Helper()
	req := &admissionv1.AdmissionRequest{
		UID: "705ab4f5-6393-11e8-b7cc-42010a800002", Operation: admissionv1.Create,
		UserInfo: authenticationv1.UserInfo{Username: user, Groups: []string{"system:authenticated"}},
		Object:   runtime.RawExtension{Raw: object},
	}
	var head metav1.PartialObjectMetadata
	if json.Unmarshal(object, &head) == nil { // some tests send what is no object
		req.Namespace = head.Namespace
	}
	if old != nil {
		data, err := json.Marshal(old.Object)
		if err != nil {
			t.Fatal(err)
		}
		req.Operation, req.OldObject = admissionv1.Update, runtime.RawExtension{Raw: data}
	}
	if status {
		req.SubResource = "status"
	}
	in := admissionv1.AdmissionReview{Request: req}
	in.Kind, in.APIVersion = "AdmissionReview", "admission.k8s.io/v1"
	body, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// post sends a body to a handler and returns the answer, which must be an AdmissionReview for every body.
func post(t testing.TB, handler http.Handler, body []byte) *admissionv1.AdmissionResponse {
	t.Helper()
	request := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, request)
	var out admissionv1.AdmissionReview
	if err := json.Unmarshal(recorder.Body.Bytes(), &out); err != nil || out.Response == nil || recorder.Code != http.StatusOK {
		t.Fatalf("answer %d is no AdmissionReview: %v: %s", recorder.Code, err, strings.TrimSpace(recorder.Body.String()))
	}
	if !out.Response.Allowed && (out.Response.Result == nil || out.Response.Result.Message == "") {
		t.Fatal("a refusal without a message")
	}
	return out.Response
}
