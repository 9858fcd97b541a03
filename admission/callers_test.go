package admission

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/admission/scenario"
	"github.com/opgate/opgate/admission/scenario/play"
)

// allowsAll allows every request, and counts the requests.
type allowsAll struct{ asked *atomic.Int64 }

func (a allowsAll) May(context.Context, *authenticationv1.UserInfo, *authorizationv1.ResourceAttributes) (bool, error) {
	a.asked.Add(1)
	return true, nil
}

// TestA9RedactedScenarios posts the review of every scenario without being the API server, as any client that reaches
// the port can. No answer names an object that the review does not, and no SubjectAccessReview is made. The API
// server's own reviews show that there is something to name.
func TestA9RedactedScenarios(t *testing.T) {
	scenarios := reviewed(t)
	names := 0 // in answers to the API server
	for _, s := range scenarios {
		t.Run(s.Name, func(t *testing.T) {
			existing := slices.Concat(s.Cluster, s.Policies)
			if s.Write != nil && s.Write.GetNamespace() != "" {
				existing = append([]*unstructured.Unstructured{namespace(s.Write.GetNamespace())}, existing...)
			}
			store, catalogs := storeOf(t, existing...), catalogsOf(t, s)
			old, object := written(t, s, existing)
			var asked atomic.Int64
			answersTo := func(authenticated func(*http.Request) bool) []*admissionv1.AdmissionResponse {
				gate := New(optionsOf(Options{Store: store, Authorizer: allowsAll{&asked},
					Authenticated: authenticated, Catalogs: catalogs}))
				return answers(t, gate, s, old, object)
			}
			for _, answer := range answersTo(byAPIServer) {
				names += len(namedBy(t, answer, old, object, existing))
			}
			asked.Store(0)
			for _, answer := range answersTo(nil) {
				if found := namedBy(t, answer, old, object, existing); len(found) > 0 {
					t.Errorf("it names %q:\n%s", found, asText(t, answer))
				}
				if len(answer.Warnings) > 0 {
					t.Errorf("it warns: %q", answer.Warnings)
				}
			}
			if n := asked.Load(); n > 0 {
				t.Errorf("%d rights were asked about", n)
			}
		})
	}
	if names < 100 {
		t.Errorf("the API server is shown %d names only: this test shows nothing", names)
	}
}

// answers are those of every endpoint for the kind that a scenario writes.
func answers(
	t *testing.T, gate *Gate, s *scenario.Scenario, old, object *unstructured.Unstructured,
) []*admissionv1.AdmissionResponse {
	t.Helper()
	status := s.Verb == "replace-status"
	user := s.User
	if user == "olm" {
		user = olmUser
	}
	var all []*admissionv1.AdmissionResponse
	handlers := gate.Handlers()
	for _, path := range slices.Sorted(maps.Keys(handlers)) {
		base, ofStatus := strings.CutSuffix(path, "-status")
		if ofStatus == status && strings.HasSuffix(base, "/"+play.ResourceOf(object)) {
			all = append(all, post(t, handlers[path], reviewOf(t, user, status, old, raw(t, object))))
		}
	}
	return all
}

// namedBy lists the objects that an answer names and the review does not: neither by name nor by namespace and name.
func namedBy(
	t *testing.T, answer *admissionv1.AdmissionResponse, old, object *unstructured.Unstructured,
	existing []*unstructured.Unstructured,
) []string {
	t.Helper()
	review := string(raw(t, object))
	if old != nil {
		review += string(raw(t, old))
	}
	said := asText(t, answer)
	var found []string
	for _, u := range existing {
		for _, name := range []string{u.GetName(), u.GetNamespace(), u.GetKind() + " " + u.GetNamespace() + "/" +
			u.GetName()} {
			if name != "" && strings.Contains(said, name) && !strings.Contains(review, name) {
				found = append(found, name)
			}
		}
	}
	return found
}

func asText(t *testing.T, answer *admissionv1.AdmissionResponse) string {
	t.Helper()
	text, err := json.Marshal(answer)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestA9ForgedUser posts reviews with a forged user who has all rights, to learn what that user may do. The answers
// show neither an override nor whether templates could be created, and the refusals are temporary.
func TestA9ForgedUser(t *testing.T) {
	for name, rule := range map[string]string{"plan-override": "bundle/version",
		"policy-escalation": "policy/escalation"} {
		t.Run(name, func(t *testing.T) {
			s := named(t, name)
			existing := slices.Concat(s.Cluster, s.Policies)
			var asked atomic.Int64
			store := storeOf(t, existing...)
			gate := New(optionsOf(Options{Store: store, Authorizer: allowsAll{&asked}}))
			old, object := written(t, s, existing)
			got := send(t, gate, "admin", false, old, object)
			if got.allowed || asked.Load() > 0 || len(got.warnings) > 0 || !strings.Contains(got.message, "("+rule) {
				t.Errorf("allowed is %v, %d rights were asked about, message %q, warnings %q", got.allowed,
					asked.Load(), got.message, got.warnings)
			}
		})
	}
}
