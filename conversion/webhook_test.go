package conversion

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/opgate/opgate/internal/inflight"
	"github.com/opgate/opgate/internal/panics"
)

// send sends a body to the webhook and reads the answer; nil where it is none.
func send(t testing.TB, body []byte) (code int, review *apiextensionsv1.ConversionReview, text string) {
	t.Helper()
	registry := prometheus.NewRegistry()
	handler := NewWebhook(Options{Budget: inflight.NewBudget(registry),
		Panics: panics.NewRecorder(registry, logr.Discard()), Log: logr.Discard()})
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, Path, bytes.NewReader(body)))
	if recorder.Code != http.StatusOK {
		return recorder.Code, nil, recorder.Body.String()
	}
	review = &apiextensionsv1.ConversionReview{}
	if err := json.Unmarshal(recorder.Body.Bytes(), review); err != nil {
		t.Fatalf("answer %q: %v", recorder.Body, err)
	}
	return recorder.Code, review, ""
}

// request is a review that asks for objects in a version.
func request(version string, objects ...string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"u-1","desiredAPIVersion":%q,"objects":[%s]}}`,
		"policy.open-cluster-management.io/"+version, strings.Join(objects, ","))
}

// oldObject is a policy in the old dialect of v1beta1.
func oldObject(name string) string {
	return fmt.Sprintf(`{"apiVersion":"policy.open-cluster-management.io/v1beta1","kind":"OperatorPolicy","metadata":{"name":%q,"namespace":"policies"},"spec":{"subscription":{"installPlanApproval":"Manual"},"verions":["a"]}}`, name)
}

func TestWebhook(t *testing.T) {
	_, review, _ := send(t, request("v1beta2", oldObject("a"), oldObject("b")))
	if review.Response.UID != "u-1" || review.Request != nil || review.Kind != "ConversionReview" ||
		review.Response.Result.Status != "Success" {
		t.Errorf("the answer is %+v", review)
	}
	if n := len(review.Response.ConvertedObjects); n != 2 {
		t.Fatalf("%d objects, want 2", n)
	}
	want := `{"apiVersion":"policy.open-cluster-management.io/v1beta2","kind":"OperatorPolicy",` +
		`"metadata":{"annotations":{"opgate.io/conversion":"{\"dialect\":\"installPlanApproval\"}"},"name":"b","namespace":"policies"},` +
		`"spec":{"subscription":{},"upgradeApproval":"None","verions":["a"]}}`
	if diff := cmp.Diff(want, strings.TrimSpace(string(review.Response.ConvertedObjects[1].Raw))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestBadConversionReviews expects an answer to each, with the fault and the object.
func TestBadConversionReviews(t *testing.T) {
	thousand := make([]string, 1000)
	for i := range thousand {
		thousand[i] = oldObject(fmt.Sprint("p", i))
	}
	thousand[612] = strings.Replace(thousand[612], "v1beta1", "v1alpha1", 1)
	for name, c := range map[string]struct {
		body []byte
		code int
		says string
	}{
		"no JSON":    {[]byte("{"), http.StatusBadRequest, "cannot be read"},
		"nothing":    {nil, http.StatusBadRequest, "cannot be read"},
		"no request": {[]byte(`{"kind":"ConversionReview"}`), http.StatusBadRequest, "it has no request"},
		"unknown version": {request("v1", oldObject("a")), http.StatusOK,
			`object 1 of 1: OperatorPolicy policies/a: OperatorPolicy "policy.open-cluster-management.io/v1" is not converted here; policy.open-cluster-management.io/v1beta1 and policy.open-cluster-management.io/v1beta2 of OperatorPolicy are`},
		"one in a thousand": {request("v1beta2", thousand...), http.StatusOK,
			`object 613 of 1000: OperatorPolicy policies/p612: OperatorPolicy "policy.open-cluster-management.io/v1alpha1" is not converted here`},
		"another kind": {request("v1beta2",
			strings.Replace(oldObject("a"), `"OperatorPolicy"`, `"Policy"`, 1)), http.StatusOK,
			"Policy policies/a: Policy"},
		"no object": {request("v1beta2", `null`), http.StatusOK, "object 1 of 1"},
		"a list":    {request("v1beta2", `[1]`), http.StatusOK, "object 1 of 1: it cannot be read"},
		"a kind that is no text": {request("v1beta2", `{"kind":{"a":1},"apiVersion":[1],"metadata":"x"}`),
			http.StatusOK, "object 1 of 1"},
		"too deep": {request("v1beta2", strings.Repeat(`{"a":`, 20_000)+"1"+strings.Repeat("}", 20_000)),
			http.StatusBadRequest, "20003 levels"},
	} {
		t.Run(name, func(t *testing.T) {
			code, review, text := send(t, c.body)
			if review != nil {
				text = review.Response.Result.Message
				if review.Response.Result.Status != "Failure" || len(review.Response.ConvertedObjects) > 0 {
					t.Errorf("the answer is %+v", review.Response)
				}
			}
			if code != c.code || !strings.Contains(text, c.says) {
				t.Errorf("code %d and %q, want %d and %q", code, text, c.code, c.says)
			}
		})
	}
}

// TestMixedBatch converts what needs it and returns what is in the requested version already.
func TestMixedBatch(t *testing.T) {
	there := `{"apiVersion":"policy.open-cluster-management.io/v1beta2","kind":"OperatorPolicy","metadata":{"name":"there"},"spec":{"upgradeApproval":"None"}}`
	_, review, _ := send(t, request("v1beta2", there, oldObject("a")))
	if n := len(review.Response.ConvertedObjects); n != 2 {
		t.Fatalf("%d objects, want 2: %s", n, review.Response.Result.Message)
	}
	if diff := cmp.Diff(there, strings.TrimSpace(string(review.Response.ConvertedObjects[0].Raw))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLargeReview(t *testing.T) {
	filler := strings.Replace(oldObject("large"), `"verions":["a"]`, `"note":"`+strings.Repeat("Ω", 512<<10)+`"`, 1)
	objects := make([]string, 7)
	for i := range objects {
		objects[i] = filler
	}
	body := request("v1beta2", objects...)
	if len(body) < 7<<20 {
		t.Fatalf("the body has %d bytes only", len(body))
	}
	if _, review, text := send(t, body); review == nil || len(review.Response.ConvertedObjects) != len(objects) {
		t.Errorf("not converted: %s", text)
	}
}

// FuzzWebhook expects an answer to every input.
func FuzzWebhook(f *testing.F) {
	f.Add(request("v1beta2", oldObject("a")))
	f.Add(request("v1beta1", strings.Replace(oldObject("a"), "v1beta1", "v1beta2", 1)))
	f.Add(request("v1beta1",
		`{"kind":"OperatorPolicy","apiVersion":"policy.open-cluster-management.io/v1beta2","metadata":{"annotations":{"opgate.io/conversion":1}},"spec":{"complianceConfig":{"upgradesProgressing":[]}}}`))
	f.Add([]byte(`{"request":{"objects":[{}]}}`))
	f.Fuzz(func(t *testing.T, body []byte) { send(t, body) })
}
