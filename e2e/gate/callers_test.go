package gate

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/e2e/internal/speed"
)

// hostile is a client without credentials that reaches the port of the webhooks.
type hostile struct {
	*harness.Env
	client *http.Client
}

func newHostile(e *harness.Env, certificates ...tls.Certificate) *hostile {
	config := e.Trust()
	if len(certificates) > 0 { // shown whatever the server reports that it trusts
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate,
			error) {
			return &certificates[0], nil
		}
	}
	return &hostile{
		Env: e,
		client: &http.Client{
			Transport: speed.Transport(&http.Transport{
				TLSClientConfig:   config,
				DisableKeepAlives: true,
			}, harness.WaitTimeout),
		},
	}
}

// post sends a review and returns the status and the body of the answer.
func (h *hostile) post(ctx context.Context, path string, review *admissionv1.AdmissionRequest) (int, string, error) {
	body, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{
			APIVersion: "admission.k8s.io/v1",
			Kind:       "AdmissionReview",
		},
		Request: review,
	})
	if err != nil {
		return 0, "", err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, h.Gate.WebhookURL()+path, bytes.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := h.client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	return response.StatusCode, string(answer), err
}

func forged(t *testing.T, old, object *unstructured.Unstructured) *admissionv1.AdmissionRequest {
	t.Helper()
	review := &admissionv1.AdmissionRequest{
		UID:       "1",
		Operation: admissionv1.Create,
		Object:    runtime.RawExtension{Raw: []byte(harness.AsJSON(t, object))},
		UserInfo: authenticationv1.UserInfo{
			Username: string(cluster.Admin),
			Groups:   []string{"system:masters", "system:authenticated"},
		},
	}
	if old != nil {
		review.Operation, review.OldObject = admissionv1.Update,
			runtime.RawExtension{Raw: []byte(harness.AsJSON(t, old))}
	}
	return review
}

// webhookPaths are the paths that the API server calls, by the name of the entry, as the validating configuration
// states.
func webhookPaths(ctx context.Context, e *harness.Env) (map[string]string, error) {
	u, err := e.Clients[cluster.Admin].Resource(harness.ValidatingResource).Get(ctx, "opgate", metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	var configuration admissionregistrationv1.ValidatingWebhookConfiguration
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &configuration); err != nil {
		return nil, err
	}
	paths := map[string]string{}
	for _, webhook := range configuration.Webhooks {
		target, err := url.Parse(*webhook.ClientConfig.URL)
		if err != nil {
			return nil, err
		}
		paths[strings.TrimSuffix(webhook.Name, ".opgate.io")] = target.Path
	}
	return paths, nil
}

// TestA9UnauthenticatedCallers posts reviews to the port of the webhooks as every client can that reaches it, with a
// made-up user. What exists in other namespaces, which policies refuse, and what that user may do is only shown to the
// API server.
func TestA9UnauthenticatedCallers(t *testing.T) {
	e := harness.Shared(t)
	h := newHostile(e)
	namespace, victim := e.NewNamespace(t), e.NewNamespace(t)
	e.Put(t, harness.OperatorPolicy(namespace))
	e.Put(t, harness.Object(`
apiVersion: operators.coreos.com/v1alpha1
kind: ClusterServiceVersion
metadata: {name: payments.v1.0.0, namespace: %s}
spec: {displayName: Payments, install: {strategy: deployment}}
`, victim))
	waiting := e.Put(t, harness.InstallPlan(namespace, "waiting", harness.ForbiddenVersion))
	e.Sync(t)
	approved := waiting.DeepCopy()
	approved.SetAnnotations(map[string]string{"opgate.io/override-reason": "curious"})
	approved.Object["spec"].(map[string]any)["approved"] = true
	overlapping := harness.OperatorPolicy(namespace)
	overlapping.SetName("another")

	for _, attack := range []struct {
		name     string
		resource string
		review   *admissionv1.AdmissionRequest
		// shown is what only the API server is shown.
		shown []string
	}{
		{
			name:     "a Constraint that nothing satisfies lists what is installed",
			resource: "constraints",
			review: forged(t, nil, harness.Object(`
apiVersion: operators.coreos.com/v1
kind: Constraint
metadata: {name: curious}
spec:
  constraints: '[{"type":"olm.constraint","value":{"evaluator":{"id":"cel"},"rule":"csv == \"\"","message":"no"}}]'
`)),
			shown: []string{"payments.v1.0.0", victim},
		},
		{
			name:     "a Subscription that is refused names the policy and what it allows",
			resource: "subscriptions",
			review:   forged(t, nil, harness.Subscription(namespace, "etcd", harness.ForeignCatalog, "Manual")),
			shown:    []string{"OperatorPolicy " + cluster.PolicyNamespace + "/" + namespace, harness.GoodCatalog},
		},
		{
			name:     "an override shows whether a user may",
			resource: "installplans",
			review:   forged(t, waiting, approved),
			shown:    []string{"OperatorPolicy " + cluster.PolicyNamespace + "/" + namespace, `"allowed":true`},
		},
		{
			name:     "a policy shows which others there are",
			resource: "operatorpolicies",
			review:   forged(t, nil, overlapping),
			shown:    []string{"policies/" + namespace},
		},
		{
			name:     "a Policy shows what a user may create",
			resource: "policies",
			review: forged(t, nil, harness.Object(`
apiVersion: policy.open-cluster-management.io/v1
kind: Policy
metadata: {name: curious, namespace: %s}
spec:
  disabled: false
  policy-templates:
    - objectDefinition: {apiVersion: operators.coreos.com/v1, kind: Constraint, metadata: {name: curious}, spec: {}}
`, cluster.PolicyNamespace)),
			shown: []string{"the rights of its author were verified could not be recorded"},
		},
	} {
		t.Run(attack.name, func(t *testing.T) {
			paths, err := webhookPaths(t.Context(), e)
			if err != nil {
				t.Fatal(err)
			}
			plain, known := "/validate/"+attack.resource, paths[attack.resource]
			if !strings.HasPrefix(known, plain+"/") {
				t.Fatalf("the API server calls %s, which has no token", known)
			}
			guesses := []string{plain, plain + "/" + strings.Repeat("a", 26), plain + "/" + known[len(known)-25:]}
			from := time.Now()
			for _, path := range guesses {
				code, answer, err := h.post(t.Context(), path, attack.review)
				if err != nil {
					t.Fatal(err)
				}
				if code != http.StatusOK || !strings.Contains(answer, `"kind":"AdmissionReview"`) {
					t.Errorf("%s: %d %s", path, code, answer)
				}
				for _, secret := range attack.shown {
					if strings.Contains(answer, secret) {
						t.Errorf("%s shows %q:\n%s", path, secret, answer)
					}
				}
			}
			requests, err := e.OpgateRequests(from, time.Time{})
			if err != nil {
				t.Fatal(err)
			}
			for _, request := range requests {
				if request.Object.Resource == "subjectaccessreviews" {
					t.Errorf("rights of a user were asked about: %s", request.URI)
				}
			}
			_, answer, err := h.post(t.Context(), known, attack.review)
			if err != nil {
				t.Fatal(err)
			}
			for _, text := range attack.shown {
				if !strings.Contains(answer, text) {
					t.Errorf("by the path of the API server the answer is\n%s\nwant it to have %q", answer, text)
				}
			}
		})
	}
	t.Run("users of the API server see all of it", func(t *testing.T) {
		harness.WantRefused(t, e.Cluster, cluster.Tenant,
			harness.AsJSON(t, harness.Subscription(namespace, "etcd", harness.ForeignCatalog, "Manual")),
			[]string{"create", "-f", "-"},
			"is not allowed by OperatorPolicy "+cluster.PolicyNamespace+"/"+namespace+" (subscription/catalog)",
			harness.GoodCatalog)
	})
}

// TestA9PathsAreRestored overwrites the paths that the API server calls, as who applies manifests by force might, with
// what any user can guess, and takes them away. They get a new token at once, and meanwhile every write is judged or
// refused.
func TestA9PathsAreRestored(t *testing.T) {
	e := harness.Shared(t)
	namespace := e.NewNamespace(t)
	e.Put(t, harness.OperatorPolicy(namespace))
	e.Sync(t)
	h := newHostile(e)
	bad := forged(t, nil, harness.Subscription(namespace, "etcd", harness.ForeignCatalog, "Manual"))
	source := "OperatorPolicy " + cluster.PolicyNamespace + "/" + namespace
	for name, path := range map[string]string{
		"a path without a token":    "/validate/subscriptions",
		"a path with a known token": "/validate/subscriptions/known",
		"no path":                   "",
	} {
		t.Run(name, func(t *testing.T) {
			before, err := webhookPaths(t.Context(), e)
			if err != nil {
				t.Fatal(err)
			}
			patch := fmt.Sprintf(`[{"op":"test","path":"/webhooks/0/name","value":"subscriptions.opgate.io"},{"op":"replace","path":"/webhooks/0/clientConfig/url","value":%q}]`, e.Gate.WebhookURL()+path)
			if _, err := e.Clients[cluster.Admin].Resource(harness.ValidatingResource).Patch(t.Context(), "opgate",
				types.JSONPatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
			write := harness.AsJSON(t, harness.Subscription(namespace, "etcd", harness.ForeignCatalog, "Manual"))
			harness.Eventually(t, "see another token, and whole messages", func(ctx context.Context) error {
				got, err := e.Clients[cluster.Tenant].Send(ctx, harness.Request{
					Method:      http.MethodPost,
					Path:        harness.PathOf(harness.Subscriptions, namespace, "", ""),
					ContentType: "application/json",
					Body:        []byte(write),
				})
				if err != nil {
					return err
				}
				if got.OK() {
					t.Fatal("a write passed while the path was another one")
				}
				now, err := webhookPaths(ctx, e)
				if err != nil {
					return err
				}
				if token := strings.TrimPrefix(now["subscriptions"], "/validate/subscriptions/"); len(token) != 26 ||
					now["subscriptions"] == before["subscriptions"] {
					return fmt.Errorf("the path is %q", now["subscriptions"])
				}
				if !strings.Contains(got.Message, source) {
					return fmt.Errorf("the message is %q", got.Message)
				}
				return nil
			})
			code, answer, err := h.post(t.Context(), "/validate/subscriptions/known", bad)
			if err != nil || code != http.StatusOK || strings.Contains(answer, source) {
				t.Errorf("a known token shows %d %s (%v)", code, answer, err)
			}
		})
	}
}

// TestA9ClientCertificate makes the API server authenticate by a client certificate. No other client is answered then. Its
// cluster is its own: the certificate is an option of the API server.
func TestA9ClientCertificate(t *testing.T) {
	t.Parallel()
	e := harness.StartUnchecked(t, cluster.Options{WebhookClient: true, Log: os.Stderr})
	c := e.Cluster
	var err error
	e.Gate, err = c.StartOpgate(context.WithoutCancel(t.Context()),
		cluster.GateOptions{Args: []string{"--client-ca-file=" + c.WebhookClientCA(),
			"--client-cn=" + cluster.WebhookClientName, "--client-cn=" + harness.AuthorityName}})
	if err != nil {
		t.Fatal(err)
	}
	namespace := e.NewNamespace(t)
	e.Put(t, harness.OperatorPolicy(namespace))
	e.Sync(t)
	source := "OperatorPolicy " + cluster.PolicyNamespace + "/" + namespace
	bad := harness.Subscription(namespace, "etcd", harness.ForeignCatalog, "Manual")
	harness.WantRefused(t, c, cluster.Tenant, harness.AsJSON(t, bad), []string{"create", "-f", "-"}, source)
	paths, err := webhookPaths(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	if paths["subscriptions"] != "/validate/subscriptions" {
		t.Errorf("the API server calls %s, but needs no token", paths["subscriptions"])
	}

	client := func(name string) tls.Certificate {
		certificate, err := c.WebhookClient(name)
		if err != nil {
			t.Fatal(err)
		}
		return certificate
	}
	signed := client(cluster.WebhookClientName)
	foreignPEM, foreignKey := harness.Authority(t, time.Hour)
	foreign, err := tls.X509KeyPair(foreignPEM, foreignKey)
	if err != nil {
		t.Fatal(err)
	}
	post := func(ctx context.Context, path string, certificates ...tls.Certificate) (int, string, error) {
		return newHostile(e, certificates...).post(ctx, path, forged(t, nil, bad))
	}
	for name, tc := range map[string]struct {
		certificates []tls.Certificate
		path         string
		code         int // 0 for no answer at all
	}{
		"no certificate": {path: "/validate/subscriptions", code: http.StatusUnauthorized},
		"no certificate, but a token": {
			path: "/validate/subscriptions/" + strings.Repeat("a", 26),
			code: http.StatusUnauthorized,
		},
		"another name": {
			certificates: []tls.Certificate{client("tenant")},
			path:         "/validate/subscriptions",
			code:         http.StatusUnauthorized,
		},
		"another CA": {certificates: []tls.Certificate{foreign}, path: "/validate/subscriptions"},
		"the certificate": {
			certificates: []tls.Certificate{signed},
			path:         "/validate/subscriptions",
			code:         http.StatusOK,
		},
		"conversion, which is not ours": {path: "/convert", code: http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			code, answer, err := post(t.Context(), tc.path, tc.certificates...)
			if code != tc.code || (err != nil) != (tc.code == 0) {
				t.Errorf("got %d %s (%v), want %d", code, answer, err, tc.code)
			}
			if shown := strings.Contains(answer, source); shown != (name == "the certificate") {
				t.Errorf("the answer is %s", answer)
			}
		})
	}
	t.Run("the CA is replaced", func(t *testing.T) {
		if err := os.WriteFile(c.WebhookClientCA(), foreignPEM, 0o600); err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, "see the new CA trusted, and the old one not", func(ctx context.Context) error {
			if code, answer, err := post(ctx, "/validate/subscriptions", foreign); err != nil ||
				code != http.StatusOK || !strings.Contains(answer, source) {
				return errors.Join(err, fmt.Errorf("a client of the new CA gets %d %s", code, answer))
			}
			if code, answer, err := post(ctx, "/validate/subscriptions", signed); err == nil {
				return fmt.Errorf("a client of the old CA gets %d %s", code, answer)
			}
			return nil
		})
	})
}

// TestS1AnnotationsOrderNothing: annotations of a webhook configuration, which static policies leave free, do not tell
// Opgate what to write into it. The change that they come with is set back to what it was, so Opgate has read them.
func TestS1AnnotationsOrderNothing(t *testing.T) {
	e := harness.Shared(t)
	const orders = `{"metadata":{"annotations":{
		"opgate.io/webhook-rules":"subscriptions.opgate.io: [{apiGroups: [none.example], apiVersions: ['*'], operations: [CREATE], resources: [nothing], scope: '*'}]",
		"opgate.io/webhook-fields":"webhooks: {subscriptions.opgate.io: {failurePolicy: Ignore, timeoutSeconds: 1}}"}}}`
	const change = `[{"op":"test","path":"/webhooks/0/name","value":"subscriptions.opgate.io"},
		{"op":"replace","path":"/webhooks/0/timeoutSeconds","value":2}]`
	configurations := e.Clients[cluster.Admin].Resource(harness.ValidatingResource)
	entries := func(ctx context.Context) []any {
		u, err := configurations.Get(ctx, "opgate", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		all := u.Object["webhooks"].([]any)
		for _, entry := range all {
			delete(entry.(map[string]any), "clientConfig") // other tests change paths
		}
		return all
	}
	before := entries(t.Context())
	for _, p := range []struct {
		kind  types.PatchType
		patch string
	}{{types.MergePatchType, orders}, {types.JSONPatchType, change}} {
		if _, err := configurations.Patch(t.Context(), "opgate", p.kind, []byte(p.patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	harness.Eventually(t, "see the change set back", func(ctx context.Context) error {
		if now := entries(ctx); !reflect.DeepEqual(now, before) {
			return fmt.Errorf("the first entry is %v", now[0])
		}
		return nil
	})
}
