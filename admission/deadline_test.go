package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
)

// TestA4Deadline: judging ends before the API server's timeout, and what was read too late is refused instead of not
// answered.
func TestA4Deadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for query, want := range map[string]time.Duration{
			"":               4 * time.Second,
			"?timeout=10s":   8 * time.Second,
			"?timeout=1s":    800 * time.Millisecond,
			"?timeout=x":     4 * time.Second,
			"?timeout=-1s":   4 * time.Second,
			"?timeout=9000h": 4 * time.Second,
		} {
			ctx, cancel := withDeadline(httptest.NewRequest(http.MethodPost, "/validate/subscriptions"+query,
				http.NoBody))
			if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) != want {
				t.Errorf("%q ends in %s, want %s", query, time.Until(deadline), want)
			}
			cancel()
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	handler := crowdedGate(t, 1).Handlers()[PathValidateInstallPlans]
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/",
		bytes.NewReader(payload(t, 4<<10))).WithContext(ctx))
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(answer.Body.Bytes(), &review); err != nil || review.Response == nil ||
		review.Response.Allowed ||
		review.Response.UID == "" || !strings.Contains(review.Response.Result.Message,
		"cannot judge this installplan in time (gate/not-ready)") {
		t.Errorf("%s (%v)", answer.Body, err)
	}
}
