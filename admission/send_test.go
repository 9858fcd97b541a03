package admission

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/admission/olmidentity"
	"github.com/opgate/opgate/admission/scenario"
	"github.com/opgate/opgate/admission/scenario/play"
	"github.com/opgate/opgate/internal/inflight"
	"github.com/opgate/opgate/internal/panics"
	"github.com/opgate/opgate/rules/facts"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
	"github.com/opgate/opgate/snapshot"
)

// olmUser is the name that OLM writes as in tests.
const olmUser = play.OLM

// overrideBy lets the users it lists do what is asked about: override every policy, and create whatever a template is.
// RBAC itself is the API server's; package e2e asks it for real.
type overrideBy []string

func (o overrideBy) May(
	_ context.Context, user *authenticationv1.UserInfo, _ *authorizationv1.ResourceAttributes,
) (bool, error) {
	return slices.Contains(o, user.Username), nil
}

// byAPIServer takes every request for one of the API server.
func byAPIServer(*http.Request) bool { return true }

func newGate(t testing.TB, store *snapshot.Store, authorizer olmidentity.Authorizer) *Gate {
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
func newGateWithCatalogs(t testing.TB, store *snapshot.Store, authorizer olmidentity.Authorizer, catalogs Catalogs) *Gate {
	t.Helper()
	gate := New(optionsOf(Options{Store: store, Authorizer: authorizer, Authenticated: byAPIServer,
		Catalogs: catalogs}))
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
	u, err := play.Marked(u, testKey)
	if err != nil {
		t.Fatal(err)
	}
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
func storeWith(t testing.TB, packages state.Packages, objects ...*unstructured.Unstructured) *snapshot.Store {
	t.Helper()
	return storeRead(t, packages, func(kind *snapshot.Kind, u *unstructured.Unstructured) *snapshot.Object {
		reader := snapshot.Reader{Unreadable: func(_ *snapshot.Kind, _ types.NamespacedName,
			err error) {
			t.Fatal(err)
		}}
		return reader.Read(kind, raw(t, u))
	}, objects...)
}

// storeRead is storeWith with a function that reads the objects.
func storeRead(t testing.TB, packages state.Packages,
	read func(*snapshot.Kind, *unstructured.Unstructured) *snapshot.Object,
	objects ...*unstructured.Unstructured) *snapshot.Store {
	t.Helper()
	cluster := play.Cluster{Objects: objects, Packages: packages,
		Versions: facts.Cluster{Version: versions.Kubernetes, OpenShift: versions.OpenShift},
		Read: func(kind *snapshot.Kind, u *unstructured.Unstructured) (*snapshot.Object, error) {
			return read(kind, u), nil
		}}
	s, err := cluster.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	return snapshot.NewStore(s)
}

// outcome is what a user sees of a write, and what is stored of it.
type outcome struct {
	allowed  bool
	decision string
	message  string
	warnings []string // sorted
	object   []byte
}

// send passes a write through the mutating and then the validating endpoint.
func send(t *testing.T, gate *Gate, user string, status bool, old, object *unstructured.Unstructured) outcome {
	t.Helper()
	got, err := (&play.Write{User: user, Status: status, Old: old, New: object}).Send(t.Context(), gate.Handlers())
	if err != nil {
		t.Fatal(err)
	}
	return outcome{got.Decision == verdict.Allow.String(), got.Decision, got.Message, got.Warnings, got.Object}
}

// reviewOf is the body that the API server sends for a write.
func reviewOf(t testing.TB, user string, status bool, old *unstructured.Unstructured, object []byte) []byte {
	t.Helper()
	body, err := play.Review(user, status, old, object)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// post sends a body to a handler and returns the answer, which must be an AdmissionReview for every body.
func post(t testing.TB, handler http.Handler, body []byte) *admissionv1.AdmissionResponse {
	t.Helper()
	answer, err := play.Post(t.Context(), handler, body)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}
