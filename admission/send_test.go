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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/opgate/opgate/rules"
)

// olmUser is the name that OLM writes as in tests.
const olmUser = "system:serviceaccount:olm:olm-operator-serviceaccount"

// overrideBy lets the users it lists override every policy. RBAC itself is the API server's; package e2e
// asks it for real.
type overrideBy []string

func (o overrideBy) MayOverride(_ context.Context, user *authenticationv1.UserInfo, _ rules.PolicyName) (bool, error) {
	return slices.Contains(o, user.Username), nil
}

func newGate(t testing.TB, store *Store, authorizer Authorizer) *Gate {
	t.Helper()
	gate, err := New(Options{
		Store:         store,
		Metrics:       NewMetrics(prometheus.NewRegistry(), store, time.Now),
		Authorizer:    authorizer,
		OLMIdentities: []string{olmUser},
		Log:           logr.Discard(),
		Now:           time.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	return gate
}

// storeOf holds a snapshot of objects, read by the same code as the feed's.
func storeOf(t testing.TB, objects ...*unstructured.Unstructured) *Store {
	t.Helper()
	kinds := []string{"OperatorPolicy", "Subscription", "InstallPlan", "ClusterServiceVersion"} // in the order of sources
	var cluster rules.Cluster
	for _, u := range objects {
		i := slices.Index(kinds, u.GetKind())
		if i < 0 {
			t.Fatalf("kind %s is not one that the gate follows", u.GetKind())
		}
		data, err := json.Marshal(u.Object)
		if err != nil {
			t.Fatal(err)
		}
		r, err := sources[i].read(data)
		if err != nil {
			t.Fatal(err)
		}
		if r.add != nil {
			r.add(&cluster)
		}
	}
	store := &Store{}
	store.current.Store(&Snapshot{namespaces: cluster.Namespaces(), generation: 1})
	return store
}

// outcome is what a user sees of a write, and what is stored of it.
type outcome struct {
	allowed  bool
	message  string
	warnings []string // sorted
	object   []byte
}

// send passes a write through the mutating and then the validating endpoint, as the API server does.
func send(t *testing.T, gate *Gate, user string, status bool, old, object *unstructured.Unstructured) outcome {
	t.Helper()
	resource := map[string]string{"OperatorPolicy": "operatorpolicies", "Subscription": "subscriptions", "InstallPlan": "installplans"}[object.GetKind()]
	validate := "/validate/" + resource
	if status {
		validate += "-status"
	}
	if user == "olm" {
		user = olmUser
	}
	got := outcome{object: raw(t, object)}
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

// post sends a body to a handler and gives the answer, which must be an AdmissionReview whatever was sent.
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
