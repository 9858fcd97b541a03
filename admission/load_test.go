package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/internal/inflight"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/verdict"
)

// busyServer answers no SubjectAccessReview until it is closed, however long that takes.
type busyServer struct {
	asked chan struct{} // one for each question
	done  chan struct{}
}

func (b busyServer) May(
	_ context.Context, _ *authenticationv1.UserInfo, _ *authorizationv1.ResourceAttributes,
) (bool, error) {
	b.asked <- struct{}{}
	<-b.done
	return false, errors.New("the API server is busy")
}

// greedy is the Policy of attack p4: it becomes many values, and its author's rights take as many questions as are
// asked.
func greedy(t testing.TB, values, questions int) *unstructured.Unstructured {
	t.Helper()
	template := fmt.Sprintf(
		`{"apiVersion":"policy.open-cluster-management.io/v1","kind":"ConfigurationPolicy","metadata":{"name":"x"},"spec":{"a":[%s{}]}}`,
		strings.Repeat("{},", values))
	var on []string
	for i := range questions - 1 {
		on = append(on, fmt.Sprintf(
			`{"apiVersion":"example.com/v1","kind":"Kind%d","name":"x","namespace":"other","compliance":"Compliant"}`,
			i))
	}
	u := &unstructured.Unstructured{}
	text := fmt.Sprintf(`{"apiVersion":"policy.open-cluster-management.io/v1","kind":"Policy","metadata":{"name":"greedy","namespace":"tenant"},`+
		`"spec":{"disabled":false,"dependencies":[%s],"policy-templates":[{"objectDefinition":%s}]}}`,
		strings.Join(on, ","), template)
	if err := u.UnmarshalJSON([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return u
}

// greedyLookups is an OperatorPolicy that becomes many values, and of which the author's rights take as many questions
// as are asked.
func greedyLookups(t testing.TB, values, questions int) *unstructured.Unstructured {
	t.Helper()
	var versions []string
	for i := range questions {
		versions = append(versions, fmt.Sprintf(`"{{ fromConfigMap \"other\" \"x%d\" \"v\" }}"`, i))
	}
	u := &unstructured.Unstructured{}
	text := fmt.Sprintf(`{"apiVersion":"policy.open-cluster-management.io/v1beta2","kind":"OperatorPolicy","metadata":{"name":"greedy","namespace":"tenant"},`+
		`"spec":{"remediationAction":"enforce","complianceType":"musthave","upgradeApproval":"None","subscription":{"name":"etcd","namespace":"tenant",`+
		`"config":{"tolerations":[%s{}]}},"versions":[%s]}}`, strings.Repeat("{},", values),
		strings.Join(versions, ","))
	if err := u.UnmarshalJSON([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return u
}

// reasonsOf returns the rules of a refusal.
func reasonsOf(answer *admissionv1.AdmissionResponse) string {
	var ids []string
	if answer.Result != nil {
		for _, cause := range answer.Result.Details.Causes {
			if id := verdict.RuleID(cause.Type); rules.RuleOf(id).ID != "" {
				ids = append(ids, string(id))
			}
		}
	}
	return strings.Join(ids, ", ")
}

// TestP4LoadOfATenant has a tenant keep 16 reviews of greedy Policies waiting for the API server, all from the API
// server's address. OLM's step is refused by the Constraint at once meanwhile, a Subscription of another namespace is
// judged, and what the Policies had reserved for judging is free, in truth as well (threat O44).
func TestP4LoadOfATenant(t *testing.T) { synctest.Test(t, loadOfATenant) }

func loadOfATenant(t *testing.T) {
	const reviews, values, questions = 16, 137_066, 10
	s := named(t, "csv-constraint-olm")
	existing := append(slices.Concat(s.Cluster, s.Policies), governed(t).Policies...)
	server := busyServer{asked: make(chan struct{}, 2*reviews*questions), done: make(chan struct{})}
	registry := prometheus.NewRegistry()
	options := optionsOf(Options{Store: storeOf(t, existing...), Authorizer: server, Authenticated: byAPIServer})
	options.Budget = inflight.NewBudget(registry)
	gate := New(options)
	handlers := gate.Handlers()
	policy := reviewOf(t, "tenant", false, nil, raw(t, greedy(t, values, questions)))
	var tenant sync.WaitGroup
	for range reviews {
		tenant.Go(func() {
			if answer := post(t, handlers[PathValidatePolicies], policy); answer.Allowed {
				t.Error("a Policy is allowed whose author's rights are not known")
			}
		})
	}
	for range reviews * questions {
		<-server.asked
	}
	runtime.GC()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	if reserved := int(valueOf(t, registry, "opgate_requests_inflight_bytes", "")); reserved > reviews*len(policy) {
		t.Errorf("%d bytes are reserved for %d reviews of %d that wait for answers", reserved, reviews, len(policy))
	}
	if limit := uint64(reviews * 3 * len(policy)); memory.HeapAlloc > limit+64<<20 {
		t.Errorf("%d MiB are in use, want the bodies and little more", memory.HeapAlloc>>20)
	}
	old, object := written(t, s, existing)
	step := post(t, handlers[PathValidateStepCSVs], reviewOf(t, olmUser, false, old, raw(t, object)))
	if !strings.Contains(reasonsOf(step), "bundle/constraint") {
		t.Errorf("the step is answered %+v", step)
	}
	foreign := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "operators.coreos.com/v1alpha1", "kind": "Subscription",
		"metadata": map[string]any{"name": "etcd", "namespace": "shop"},
		"spec": map[string]any{"name": "etcd", "channel": "stable", "source": "my-own-catalog",
			"sourceNamespace": "olm", "installPlanApproval": "Manual"},
	}}
	if answer := post(t, handlers[PathValidateSubscriptions],
		reviewOf(t, "admin", false, nil, raw(t, foreign))); reasonsOf(answer) != "subscription/catalog" {
		t.Errorf("a Subscription is answered %+v", answer)
	}
	close(server.done)
	tenant.Wait()
}

// TestP4LookupsOfATenant has a tenant keep reviews of OperatorPolicies, whose templates look up objects, waiting for
// the API server.
func TestP4LookupsOfATenant(t *testing.T) {
	for _, path := range []string{PathMutateOperatorPolicies, PathValidateOperatorPolicies} {
		t.Run(path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { lookupsOfATenant(t, path) })
		})
	}
}

func lookupsOfATenant(t *testing.T, path string) {
	const reviews, values, questions = 8, 2_000, 10
	server := busyServer{asked: make(chan struct{}, 2*reviews*questions), done: make(chan struct{})}
	registry := prometheus.NewRegistry()
	options := optionsOf(Options{Store: storeOf(t), Authorizer: server, Authenticated: byAPIServer})
	options.Budget = inflight.NewBudget(registry)
	gate := New(options)
	handler := gate.Handlers()[path]
	old := greedyLookups(t, 1, 1)
	old.SetUID("a")
	body := reviewOf(t, "tenant", false, old, raw(t, greedyLookups(t, values, questions)))
	var tenant sync.WaitGroup
	for range reviews {
		tenant.Go(func() {
			if answer := post(t, handler, body); path == PathValidateOperatorPolicies &&
				!strings.Contains(reasonsOf(answer), "operatorpolicy/lookup") {
				t.Errorf("an OperatorPolicy whose author's rights are not known is answered %+v", answer)
			}
		})
	}
	for range reviews * questions {
		<-server.asked
	}
	if reserved := int(valueOf(t, registry, "opgate_requests_inflight_bytes", "")); reserved > reviews*len(body) {
		t.Errorf("%d bytes are reserved for %d reviews of %d that wait for answers", reserved, reviews, len(body))
	}
	close(server.done)
	tenant.Wait()
}

// TestP4Questions wants a Policy whose rights take too many questions to be refused without any, and each question to
// be asked once.
func TestP4Questions(t *testing.T) {
	authorizer := &rights{}
	got := send(t, newGate(t, storeOf(t), authorizer), "tenant", false, nil, greedy(t, 1, 481))
	const want = "takes 481 access reviews, at most 20 are made (policy/escalation): split it into Policies that make at most 5 kinds and wait for at most 5 objects"
	if got.allowed || len(authorizer.asked) > 0 || !strings.Contains(got.message, want) {
		t.Errorf("allowed is %v, asked about %d rights: %s", got.allowed, len(authorizer.asked), got.message)
	}
}

// TestP4EveryStepIsAnswered sends the endpoints of steps what cannot be judged, over a connection. An HTTP error, a
// closed connection or an answer without the UID would allow the step (threat O44).
func TestP4EveryStepIsAnswered(t *testing.T) {
	gate := governedGate(t)
	gate.Authenticated = func(r *http.Request) bool { return r.PathValue("token") == "known" }
	server := muxOf(t, gate)
	const head = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"705a","namespace":"shop","operation":"CREATE","object":`
	megabytes := `"` + strings.Repeat("<", 20<<20) + `"}}`
	for name, c := range map[string]struct{ token, body, want string }{
		"attack: no token":             {"", head + `{}}}`, "(gate/not-ready): the caller is not known"},
		"attack: another token":        {"/other", head + `{}}}`, "(gate/not-ready): the caller is not known"},
		"no token, and many megabytes": {"", head + megabytes, "(gate/not-ready): the caller is not known"},
		"many megabytes":               {"/known", head + megabytes, "(gate/unreadable): it is too large"},
		"a little more than is read": {"/known", head + megabytes[:3<<20] + `"}}`,
			"(gate/unreadable): it is too large"},
		"many values": {"/known", head + `{"metadata":{"labels":[` + strings.Repeat("{},", 500_000) +
			`{}]}}}}`, "(gate/unreadable): it has"},
		"no UTF-8": {"/known", head + `{"metadata":{"name":"` + "\xff" + `"}}}}`,
			"(gate/unreadable): it is not UTF-8"},
		"cut off":   {"/known", head + `{`, "(gate/unreadable): the review cannot be read"},
		"no object": {"/known", head + `null}}`, "(gate/unreadable): the review of operation"},
		"another kind": {"/known", strings.Replace(head, "AdmissionReview", "Review", 1) + `{}}}`,
			"(gate/unreadable): kind"},
	} {
		for _, path := range []string{PathMutateGeneratedSubscriptions, PathValidateGeneratedSubscriptions,
			PathValidateStepCSVs} {
			t.Run(name+path, func(t *testing.T) {
				for _, announced := range []bool{true, false} {
					answer := call(t, server.URL+path+c.token, c.body, announced)
					if answer.Allowed || answer.UID != "705a" || answer.Result.Code != http.StatusForbidden ||
						!strings.Contains(answer.Result.Message, c.want) {
						t.Errorf("announced %t: the answer is %+v, with UID %q", announced, answer.Result, answer.UID)
					}
				}
			})
		}
	}
}

// muxOf serves the endpoints of a gate with and without a token.
func muxOf(t *testing.T, gate *Gate) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	for path, handler := range gate.Handlers() {
		mux.Handle(path, handler)
		mux.Handle(path+"/{token}", handler)
	}
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server
}

// call sends a body, with its length or without, and returns the answer.
func call(t *testing.T, url, body string, announced bool) *admissionv1.AdmissionResponse {
	t.Helper()
	var reader io.Reader = strings.NewReader(body)
	if !announced {
		reader = struct{ io.Reader }{reader}
	}
	response, err := http.Post(url, "application/json", reader)
	if err != nil {
		t.Fatalf("announced %t: %v", announced, err)
	}
	defer func() { _ = response.Body.Close() }()
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(response.Body).Decode(&review); err != nil || response.StatusCode != http.StatusOK ||
		review.Response == nil {
		t.Fatalf("announced %t: answer %d is no AdmissionReview: %v", announced, response.StatusCode, err)
	}
	return review.Response
}

// TestP4WithoutMemory exhausts the memory for steps, and that for all others: the API server is answered before its
// timeout, by a refusal with the UID. Other clients are answered 429, and take nothing from the memory for steps.
func TestP4WithoutMemory(t *testing.T) { synctest.Test(t, withoutMemory) }

func withoutMemory(t *testing.T) {
	const timeout = "?timeout=1s"
	gate := governedGate(t)
	gate.Authenticated = func(r *http.Request) bool { return r.URL.RawQuery == timeout[1:] }
	handlers := gate.Handlers()
	body := reviewOf(t, olmUser, false, nil, []byte(`{"metadata":{"name":"x","namespace":"shop"}}`))
	exhaust := func(c inflight.Caller) (release func()) {
		var held []*inflight.Body
		for size := 1 << 20; size > 64; size /= 2 {
			text := []byte(`{"request":{"namespace":"shop","a":"` + strings.Repeat("a", size) + `"}}`)
			for i := 0; ; i++ {
				ctx, cancel := context.WithCancel(t.Context())
				cancel() // nothing waits
				r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", bytes.NewReader(text))
				r.RemoteAddr = fmt.Sprintf("10.0.%d.%d:1", size%256, i)
				b := gate.Budget.For(r, c)
				held = append(held, b)
				if b.Read(r.Context(), httptest.NewRecorder(), r) != nil {
					break
				}
			}
		}
		return func() {
			for _, b := range held {
				b.Close()
			}
		}
	}
	release := exhaust(inflight.Caller{Authenticated: true})
	for _, path := range []string{PathValidateCSVs, PathMutateSubscriptions, PathValidateConstraints,
		PathValidatePolicies} {
		begun := time.Now()
		request := httptest.NewRequest(http.MethodPost, "/"+timeout, bytes.NewReader(body))
		recorder := httptest.NewRecorder()
		handlers[path].ServeHTTP(recorder, request)
		var review admissionv1.AdmissionReview
		if err := json.Unmarshal(recorder.Body.Bytes(), &review); err != nil || review.Response == nil ||
			review.Response.UID == "" ||
			review.Response.Allowed || !strings.Contains(review.Response.Result.Message, "in time (gate/not-ready)") {
			t.Errorf("%s is answered %d %s", path, recorder.Code, recorder.Body)
		}
		if took := time.Since(begun); took > 950*time.Millisecond {
			t.Errorf("%s is answered after %s", path, took)
		}
	}
	for _, path := range []string{PathMutateGeneratedSubscriptions, PathValidateGeneratedSubscriptions,
		PathValidateStepCSVs} {
		recorder := httptest.NewRecorder()
		handlers[path].ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, "/"+timeout, bytes.NewReader(body)))
		if strings.Contains(recorder.Body.String(), "gate/not-ready") || recorder.Code != http.StatusOK {
			t.Errorf("without memory for others, a step is answered %d %s", recorder.Code, recorder.Body)
		}
	}
	release()
	defer exhaust(inflight.Caller{Authenticated: true, Step: true})()
	request := httptest.NewRequest(http.MethodPost, "/"+timeout, bytes.NewReader(body))
	recorder := httptest.NewRecorder()
	handlers[PathValidateStepCSVs].ServeHTTP(recorder, request)
	if !strings.Contains(recorder.Body.String(), `"uid":"705ab4f5`) ||
		!strings.Contains(recorder.Body.String(), "in time (gate/not-ready)") {
		t.Errorf("without memory, a step is answered %d %s", recorder.Code, recorder.Body)
	}
}

// TestN1LargeReviews: a review that is larger than is read is refused with its UID by every endpoint, no matter who
// sends it: the API server takes an answer without it for a failed call.
func TestN1LargeReviews(t *testing.T) {
	gate := governedGate(t)
	gate.Authenticated = func(r *http.Request) bool { return r.PathValue("token") == "known" }
	server := muxOf(t, gate)
	for path, handler := range gate.Handlers() {
		if IsStep(path) {
			continue // TestP4EveryStepIsAnswered
		}
		for _, announced := range []bool{true, false} {
			answer := call(t, server.URL+path+"/known", large, announced)
			if answer.Allowed || answer.UID != "705a" || !strings.Contains(answer.Result.Message,
				"(gate/unreadable): it is too large: at most 8192 KiB are read") {
				t.Errorf("%s, announced %t: the answer is %+v, with UID %q", path, announced, answer.Result, answer.UID)
			}
		}
		// The connection of another client may be closed before it has sent everything.
		if answer := post(t, handler, []byte(large)); answer.Allowed || answer.UID != "705a" {
			t.Errorf("%s, not authenticated: the answer is %+v, with UID %q", path, answer.Result, answer.UID)
		}
	}
}

// large is a review that is larger than is read: each of these characters takes six bytes.
var large = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"705a","namespace":"shop","operation":"CREATE",` +
	`"object":{"spec":{"description":"` + strings.Repeat(`\u003c`, inflight.MaxBody/6+1) + `"}}}}`

// TestP4tToken: a call that the API server may have given up on is reported, so that its token is replaced, and no
// other.
func TestP4tToken(t *testing.T) {
	gate := governedGate(t)
	var exposed []string
	gate.Exposed = func(r *http.Request) { exposed = append(exposed, r.URL.Path) }
	gate.Authenticated = func(r *http.Request) bool { return r.URL.Path != "/other" }
	body := reviewOf(t, "admin", false, nil, []byte(`{"metadata":{"name":"x","namespace":"shop"}}`))
	handler := gate.Handlers()[PathValidateSubscriptions]
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		name, path string
		ctx        context.Context
		body       io.Reader
		writer     http.ResponseWriter
		want       bool
	}{
		{name: "answered in time", path: "/known", ctx: t.Context(), body: bytes.NewReader(body)},
		{name: "the client is gone", path: "/known", ctx: gone, body: bytes.NewReader(body), want: true},
		{name: "the body ends early", path: "/known", ctx: t.Context(),
			body: io.MultiReader(bytes.NewReader(body[:100]), failing{}), want: true},
		{name: "the answer cannot be sent", path: "/known", ctx: t.Context(), body: bytes.NewReader(body),
			writer: unwritable{httptest.NewRecorder()}, want: true},
		{name: "attack: a client that is not the API server", path: "/other", ctx: gone, body: bytes.NewReader(body)},
	} {
		t.Run(c.name, func(t *testing.T) {
			exposed = nil
			writer := c.writer
			if writer == nil {
				writer = httptest.NewRecorder()
			}
			handler.ServeHTTP(writer, httptest.NewRequestWithContext(c.ctx, http.MethodPost, c.path, c.body))
			if got := len(exposed) > 0; got != c.want {
				t.Errorf("reported is %q, want %t", exposed, c.want)
			}
		})
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("connection reset") }

type unwritable struct{ http.ResponseWriter }

func (unwritable) Write([]byte) (int, error) { return 0, errors.New("connection reset") }
