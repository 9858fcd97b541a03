package admission

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "sigs.k8s.io/json"

	"github.com/opgate/opgate/admission/scenario"
	"github.com/opgate/opgate/admission/scenario/scenariotest"
	"github.com/opgate/opgate/internal/inflight"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/verdict"
	"github.com/opgate/opgate/snapshot"
)

// governed is the scenario whose cluster has a policy for etcd in namespace shop and a plan outside it.
func governed(t testing.TB) *scenario.Scenario { return named(t, "bundle-version") }

func governedGate(t testing.TB) *Gate {
	s := governed(t)
	return newGate(t, storeOf(t, append(s.Cluster, s.Policies...)...), overrideBy{})
}

// namesRule finds the rule in a refusal.
var namesRule = regexp.MustCompile(`\([a-z]+/[a-z-]+\)`)

// TestBadReviews sends what no API server sends, and what a hostile client might. Every answer
// is an AdmissionReview that refuses.
func TestBadReviews(t *testing.T) {
	const uid = `"uid":"705ab4f5"`
	review := func(request string) string {
		return `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{` + uid + `,` + request + `}}`
	}
	update := func(object, old string) string {
		return review(`"operation":"UPDATE","object":` + object + `,"oldObject":` + old)
	}
	const meta = `"metadata":{"name":"install-x7","namespace":"shop"}`
	const held = `{` + meta + `,"spec":{"clusterServiceVersionNames":["etcdoperator.v0.9.4"],"approved":false}}`

	for name, body := range map[string]string{
		"nothing":  "",
		"no JSON":  "approved: true",
		"a number": "7",
		"null":     "null",
		"cut off":  update(held, held)[:120],
		"another kind": strings.Replace(update(held, held), `"kind":"AdmissionReview"`,
			`"kind":"ConversionReview"`, 1),
		"another version": strings.Replace(update(held, held), "admission.k8s.io/v1",
			"admission.k8s.io/v1beta1", 1),
		"no request":                       `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`,
		"no uid":                           strings.Replace(update(held, held), uid, `"uid":""`, 1),
		"no object":                        review(`"operation":"UPDATE","object":null,"oldObject":` + held),
		"an update of nothing":             review(`"operation":"UPDATE","object":` + held),
		"a create over something":          review(`"operation":"CREATE","object":` + held + `,"oldObject":` + held),
		"an operation that does not exist": review(`"operation":"UPSERT","object":` + held),
		"a delete":                         review(`"operation":"DELETE","object":null,"oldObject":` + held),
		"an object that is a list":         update(`[`+held+`]`, held),
		"approved as a string":             update(strings.Replace(held, "false", `"true"`, 1), held),
		"approved as a number":             update(strings.Replace(held, "false", "1", 1), held),
		"approved twice, last is true": update(strings.Replace(held, `"approved":false`,
			`"approved":false,"approved":true`, 1), held),
		"spec twice, last approves": update(`{`+meta+
			`,"spec":{"approved":false},"spec":{"clusterServiceVersionNames":["etcdoperator.v0.9.4"],"approved":true}}`,
			held),
		"ten thousand levels": update(`{"metadata":`+strings.Repeat(`{"a":`, 10_001)+`1`+
			strings.Repeat(`}`, 10_001)+`}`, held),
		"ten thousand levels of lists": update(`{"spec":{"clusterServiceVersionNames":`+strings.Repeat(`[`, 10_001)+
			strings.Repeat(`]`, 10_001)+`}}`, held),
		"a name that is no UTF-8": update(strings.Replace(held, `"approved":false`, `"approved":true`, 1),
			strings.Replace(held, "etcdoperator", "etcd\xff", 1)),
		"two megabytes of names": update(strings.Replace(held, `"etcdoperator.v0.9.4"`,
			strings.Repeat(`"a",`, 500_000)+`"b"`, 1), held),
	} {
		t.Run(name, func(t *testing.T) {
			handler := governedGate(t).Handlers()[PathValidateInstallPlans]
			answer := post(t, handler, []byte(body))
			if answer.Allowed {
				t.Errorf("allowed: %.200s", body)
			} else if !namesRule.MatchString(answer.Result.Message) {
				t.Errorf("the refusal names no rule: %s", answer.Result.Message)
			}
		})
	}
}

// TestUnreadableObjects sends policies and Constraints that do not decode, as an API server does whose definition of
// the kind has no schema: what is stored unread would refuse nothing.
func TestUnreadableObjects(t *testing.T) {
	handlers := governedGate(t).Handlers()
	for name, c := range map[string]struct{ path, object string }{
		"a spec that is a text": {PathValidateOperatorPolicies, `{"metadata":{"name":"etcd"},"spec":"enforce"}`},
		"versions that are a number": {PathValidateOperatorPolicies,
			`{"metadata":{"name":"etcd"},"spec":{"versions":1}}`},
		"a Constraint that is a text": {PathValidateConstraints, `{"metadata":{"name":"curated"},"spec":"none"}`},
	} {
		t.Run(name, func(t *testing.T) {
			answer := post(t, handlers[c.path], reviewOf(t, "admin", false, nil, []byte(c.object)))
			if answer.Allowed || !strings.Contains(answer.Result.Message, "(gate/unreadable)") {
				t.Errorf("%s is answered %+v", c.object, answer)
			}
		})
	}
}

// TestKeysInAnotherCase shows that keys are read as the API server reads them: "Approved" is no field, so a
// review that has both must be judged by the one that will be stored.
func TestKeysInAnotherCase(t *testing.T) {
	s := governed(t)
	old := s.Cluster[0]
	object := old.DeepCopy()
	spec := object.Object["spec"].(map[string]any)
	spec["approved"] = true
	spec["Approved"] = false
	spec["APPROVED"] = false
	got := send(t, governedGate(t), "admin", false, old, object)
	if got.allowed || !strings.Contains(got.message, "bundle/version") {
		t.Errorf("allowed is %v, message %q", got.allowed, got.message)
	}
}

// TestLargeBodies sends more than a review may hold, with and without saying so first.
func TestLargeBodies(t *testing.T) {
	body := bytes.Repeat([]byte(" "), inflight.MaxBody+1)
	handler := governedGate(t).Handlers()[PathValidateInstallPlans]
	for name, request := range map[string]*http.Request{
		"announced": httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body)),
		"chunked":   httptest.NewRequest(http.MethodPost, "/", struct{ *bytes.Reader }{bytes.NewReader(body)}),
		"shorter than announced": func() *http.Request {
			r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("{}"))
			r.ContentLength = 100
			return r
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			recorder := httptest.NewRecorder()
			handler.ServeHTTP(recorder, request)
			var out struct {
				Response struct {
					Allowed bool `json:"allowed"`
					Status  struct {
						Message string `json:"message"`
					} `json:"status"`
				} `json:"response"`
			}
			if err := json.Unmarshal(recorder.Body.Bytes(), &out); err != nil {
				t.Fatal(err)
			}
			if out.Response.Allowed || !namesRule.MatchString(out.Response.Status.Message) {
				t.Errorf("answer is %s", recorder.Body)
			}
		})
	}
}

// TestNotReady asks every endpoint before there is a snapshot: an empty list of policies must never read as
// "no policies" (threat G2).
func TestNotReady(t *testing.T) {
	s := governed(t)
	gate := newGate(t, &snapshot.Store{}, overrideBy{"admin"})
	for path, handler := range gate.Handlers() {
		for _, object := range append(s.Cluster, s.Policies...) {
			answer := post(t, handler, reviewOf(t, "admin", false, nil, raw(t, object)))
			if answer.Allowed || !strings.Contains(answer.Result.Message, "(gate/not-ready)") {
				t.Errorf("%s answers %+v", path, answer)
			}
		}
	}
}

// TestMatchConditionsSkipOnlyWhatPasses checks the matchConditions of the webhooks: every write
// that they skip is one that the gate would allow.
func TestMatchConditionsSkipOnlyWhatPasses(t *testing.T) {
	scenarios := scenariotest.Load(t, scenarioDir, versions)
	for _, s := range scenarios {
		existing := slices.Concat(s.Cluster, s.Policies)
		gate := newGate(t, storeOf(t, existing...), overrideBy{})
		for _, old := range existing {
			if old.GetKind() == "Namespace" || old.GetLabels()[metakey.VirtualOperator] != "" {
				continue // the first are not judged, the second are judged whatever is written of them
			}
			object := old.DeepCopy()
			labels := map[string]string{"operators.coreos.com/etcd.shop": ""}
			if from := old.GetLabels()["olm.copiedFrom"]; from != "" {
				labels["olm.copiedFrom"] = from // a write that removes it is judged
			}
			object.SetLabels(labels)
			if got := send(t, gate, "tenant", false, old, object); !got.allowed {
				t.Errorf("%s: labels of %s %s: %s", s.Name, old.GetKind(), old.GetName(), got.message)
			}
			if old.GetKind() != "ClusterServiceVersion" {
				continue
			}
			// OLM may write anything to what it has installed, and copies it to other namespaces.
			object = old.DeepCopy()
			object.SetAnnotations(map[string]string{"operatorframework.io/properties": "{}", "olm.operatorGroup": "og"})
			if got := send(t, gate, olmUser, false, old, object); !got.allowed {
				t.Errorf("%s: OLM updates %s: %s", s.Name, old.GetName(), got.message)
			}
			object.SetLabels(map[string]string{"olm.copiedFrom": "elsewhere"})
			if got := send(t, gate, olmUser, false, nil, object); !got.allowed {
				t.Errorf("%s: OLM copies %s: %s", s.Name, old.GetName(), got.message)
			}
		}
	}
}

// FuzzReview looks for a body that panics or is answered with anything but an AdmissionReview, and for one
// that approves the plan outside the list.
func FuzzReview(f *testing.F) {
	s := governed(f)
	gate := newGate(f, storeOf(f, append(s.Cluster, s.Policies...)...), overrideBy{})
	old, err := json.Marshal(s.Cluster[0].Object)
	if err != nil {
		f.Fatal(err)
	}
	approved := s.Cluster[0].DeepCopy()
	approved.Object["spec"].(map[string]any)["approved"] = true
	data, err := json.Marshal(approved.Object)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(data))
	f.Add(string(old))
	f.Add(`{"metadata":{"namespace":"shop"},"spec":{"approved":true}}`)
	handler := gate.Handlers()[PathValidateInstallPlans]
	stored := &unstructured.Unstructured{}
	if err := json.Unmarshal(old, &stored.Object); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, object string) {
		body := fmt.Sprintf(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","operation":"UPDATE","object":%s,"oldObject":%s}}`, object, old)
		answer := post(t, handler, []byte(body))
		var written struct {
			Metadata struct {
				Namespace string `json:"namespace"`
			} `json:"metadata"`
			Spec struct {
				Approved bool `json:"approved"`
			} `json:"spec"`
		}
		if answer.Allowed && kjson.UnmarshalCaseSensitivePreserveInts([]byte(object), &written) == nil &&
			written.Spec.Approved && written.Metadata.Namespace == "shop" {
			t.Errorf("approved by %s", object)
		}
	})
}

// TestUnexpectedCalls sends what the webhook configurations never match: another method, and a create on
// the endpoint for updates of status (threat G7).
func TestUnexpectedCalls(t *testing.T) {
	s := governed(t)
	handlers := governedGate(t).Handlers()
	for path, handler := range handlers {
		for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodDelete} {
			recorder := httptest.NewRecorder()
			handler.ServeHTTP(recorder, httptest.NewRequest(method, path,
				strings.NewReader(string(reviewOf(t, "admin", false, nil, raw(t, s.Cluster[0]))))))
			if recorder.Code != http.StatusMethodNotAllowed {
				t.Errorf("%s %s is answered %d", method, path, recorder.Code)
			}
		}
	}
	answer := post(t, handlers[PathValidateInstallPlansStatus], reviewOf(t, "admin", true, nil, raw(t, s.Cluster[0])))
	if answer.Allowed || !strings.Contains(answer.Result.Message, "(gate/unexpected)") {
		t.Errorf("a create of a status is answered %+v", answer)
	}
}

// TestStoredUnknownField judges by a policy with a misspelt field that was stored before there was any admission:
// without the field it would allow every version.
func TestStoredUnknownField(t *testing.T) {
	s := governed(t)
	policy := s.Policies[0].DeepCopy()
	spec := policy.Object["spec"].(map[string]any)
	spec["verions"] = spec["versions"]
	delete(spec, "versions")
	ns := storeOf(t, append(s.Cluster, policy)...).Load().Namespace("shop")
	for _, p := range ns.Policies() {
		if want := []string{`unknown field "spec.verions"; correct it or remove it`}; !slices.Equal(p.Problems, want) {
			t.Errorf("problems are %q, want %q", p.Problems, want)
		}
	}
	for _, plan := range ns.Plans() {
		if v := rules.JudgePlan(rules.PlanInput{Plan: plan, Namespace: ns}); v.Decision != verdict.Hold {
			t.Errorf("%s: %s, want Hold", v.Object, v.Decision)
		}
	}
	if len(ns.Policies()) != 1 || len(ns.Plans()) == 0 {
		t.Errorf("%d policies and %d plans, so nothing was tested", len(ns.Policies()), len(ns.Plans()))
	}
}
