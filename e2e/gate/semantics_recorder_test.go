package gate

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// recorder is a validating webhook that allows everything and keeps the body of the last review.
type recorder struct {
	*httptest.Server
	mu   sync.Mutex
	body []byte
}

// startRecorder makes the API server send the reviews of a namespace to a recorder too.
func startRecorder(t *testing.T, e *harness.Env, namespace string) *recorder {
	t.Helper()
	r := &recorder{}
	r.Server = httptest.NewUnstartedServer(r)
	r.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	r.StartTLS()
	t.Cleanup(r.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.Certificate().Raw})
	configuration := harness.Object(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: recorder-%[1]s}
webhooks:
  - name: recorder.example.com
    clientConfig: {url: %[2]q, caBundle: %[3]s}
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[1]s}}
    rules:
      - apiGroups: [operators.coreos.com, policy.open-cluster-management.io]
        apiVersions: ["*"]
        operations: [CREATE, UPDATE]
        resources: [subscriptions, installplans, installplans/status, clusterserviceversions, operatorpolicies]
    failurePolicy: Fail
    sideEffects: None
    admissionReviewVersions: [v1]
`, namespace, r.URL, base64.StdEncoding.EncodeToString(ca))
	configurations := e.Clients[cluster.Admin].Resource(harness.ValidatingResource)
	if _, err := configurations.Create(t.Context(), configuration, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := configurations.Delete(context.WithoutCancel(t.Context()), configuration.GetName(),
			metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	u := harness.Subscription(namespace, "recorded", harness.GoodCatalog, "Manual")
	harness.Eventually(t, "see a review recorded", func(ctx context.Context) error {
		_, err := e.Clients[cluster.Admin].Of(u).Create(ctx, u,
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && r.take() == nil {
			err = errors.New("there is none")
		}
		return err
	})
	return r
}

func (r *recorder) ServeHTTP(response http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	var review admissionv1.AdmissionReview
	if err == nil {
		err = json.Unmarshal(body, &review)
	}
	if err == nil && review.Request == nil {
		err = fmt.Errorf("no review: %.300q", body)
	}
	if err != nil {
		http.Error(response, err.Error(), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	r.body = body
	r.mu.Unlock()
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	review.Request = nil
	response.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(response).Encode(review)
}

// take returns the body of the last review, nil where there was none since the last call.
func (r *recorder) take() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	body := r.body
	r.body = nil
	return body
}
