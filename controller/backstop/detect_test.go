package backstop

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/controller/owned"
	"github.com/opgate/opgate/rules/backstop"
	"github.com/opgate/opgate/rules/facts"
	"github.com/opgate/opgate/snapshot"
)

// served responds like API servers that the tests do not have: earlier ones, and one that fails. It serves some kinds,
// and answers the dry run of a policy that calls semver() with a code.
func served(t *testing.T, code int, serves ...string) *Controller {
	t.Helper()
	answer := func(w http.ResponseWriter, code int, body any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(body)
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
			GroupVersion: group.String()}
		for _, k := range append([]string{"ValidatingWebhookConfiguration"}, serves...) {
			i := slices.IndexFunc(kinds, func(known kind) bool { return known.name == k })
			if i >= 0 {
				list.APIResources = append(list.APIResources,
					metav1.APIResource{Name: kinds[i].resource, Kind: k, Verbs: metav1.Verbs{"create"}})
			}
		}
		switch {
		case r.Method == http.MethodPost && r.URL.Query().Get("dryRun") != "All":
			t.Errorf("%s %s stores something", r.Method, r.URL)
			fallthrough
		case r.Method == http.MethodPost && code != http.StatusCreated:
			reason := map[int]metav1.StatusReason{http.StatusUnprocessableEntity: metav1.StatusReasonInvalid,
				http.StatusForbidden: metav1.StatusReasonForbidden}[code]
			answer(w, code, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
				Status: "Failure", Code: int32(code), Reason: reason})
		case r.Method == http.MethodPost:
			answer(w, code, owned.Unstructured(semverProbe()).Object)
		case r.URL.Path == "/apis/admissionregistration.k8s.io/v1":
			answer(w, http.StatusOK, list)
		case r.URL.Path == "/apis":
			answer(w, http.StatusOK,
				metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"},
					Groups: []metav1.APIGroup{{Name: group.Group,
						Versions: []metav1.GroupVersionForDiscovery{{GroupVersion: group.String(), Version: group.Version}}}}})
		default:
			answer(w, http.StatusNotFound, metav1.Status{Status: "Failure", Code: http.StatusNotFound,
				Reason: metav1.StatusReasonNotFound})
		}
	}))
	t.Cleanup(srv.Close)
	config := &rest.Config{Host: srv.URL}
	found, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	writer, err := client.New(config, client.Options{Scheme: runtime.NewScheme()})
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	return &Controller{Metrics: NewMetrics(registry), discovery: found, Shared: apply.Shared{Log: testr.New(t),
		Writer: apply.Writer{Client: writer, Metrics: apply.NewMetrics(registry)}}}
}

func TestDetect(t *testing.T) {
	validating := []string{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
	all := append([]string{"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"}, validating...)
	for name, test := range map[string]struct {
		kinds []string
		code  int
		want  backstop.Features
		fails bool
	}{
		"everything": {kinds: all, code: http.StatusCreated,
			want: backstop.Features{ValidatingAdmissionPolicy: true, MutatingAdmissionPolicy: true, Semver: true}},
		"no semver": {kinds: all, code: http.StatusUnprocessableEntity,
			want: backstop.Features{ValidatingAdmissionPolicy: true, MutatingAdmissionPolicy: true}},
		"semver that cannot be asked for": {kinds: all, code: http.StatusForbidden,
			want: backstop.Features{ValidatingAdmissionPolicy: true, MutatingAdmissionPolicy: true}},
		"no mutating policies": {kinds: validating, code: http.StatusCreated,
			want: backstop.Features{ValidatingAdmissionPolicy: true, Semver: true}},
		"a kind without its binding": {kinds: validating[:1], code: http.StatusCreated},
		"none":                       {code: http.StatusCreated},
		"a server that fails":        {kinds: all, code: http.StatusInternalServerError, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := served(t, test.code, test.kinds...)
			got, err := r.detect(t.Context())
			if got != test.want || (err != nil) != test.fails {
				t.Fatalf("got %+v, %v; want %+v", got, err, test.want)
			}
			if known := r.features.Load() != nil; known == test.fails {
				t.Errorf("it is detected again: %t", !known)
			}
			for _, version := range []string{"1.37.0", "1.38.0"} {
				next := (&snapshot.Builder{}).SetCluster(time.Time{}, facts.Cluster{Version: version})
				r.changed(&snapshot.Change{Snapshot: next})
			}
			if r.features.Load() != nil {
				t.Error("an upgrade is not noticed")
			}
		})
	}
}

// TestNothingIsCompiledAgain: what was compiled while there were objects to write has no timer once there are none.
func TestNothingIsCompiledAgain(t *testing.T) {
	r := served(t, http.StatusCreated)
	r.Mode, r.User, r.Now = Enforce, func() string { return "opgate" }, time.Now
	r.compiled = compiled{at: time.Now().Add(-time.Hour), until: time.Now().Add(-time.Minute), behind: true}
	if result, err := r.Reconcile(t.Context(), item{}); err != nil || !result.IsZero() {
		t.Errorf("got %+v, %v", result, err)
	}
}
