package gate

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/e2e/internal/speed"
)

// TestBadObjects sends the API server what no sane client sends. No matter what refuses it, the gate goes on, and
// nothing forbidden is stored. TestStoredAsJudged has what decoders read in different ways.
func TestBadObjects(t *testing.T) {
	e := harness.Shared(t)
	namespace := e.NewNamespace(t)
	e.Put(t, harness.OperatorPolicy(namespace))
	waiting := e.Put(t, harness.InstallPlan(namespace, "waiting", harness.ForbiddenVersion))
	e.Sync(t)

	sub := func(change map[string]any) []byte {
		return []byte(harness.Normal(harness.MergePatch(harness.Subscription(namespace, "bad", harness.ForeignCatalog,
			"Automatic").Object, change)))
	}
	operatorPolicy := func(change map[string]any) []byte {
		return []byte(harness.Normal(harness.MergePatch(harness.OperatorPolicy("bad-"+namespace).Object, change)))
	}
	const levels = "LEVELS"
	nested := func(body []byte, n int) []byte { // encoding/json would refuse as many
		return bytes.Replace(body, []byte(`"`+levels+`"`),
			[]byte(strings.Repeat(`{"a":`, n)+"1"+strings.Repeat("}", n)), 1)
	}
	megabytes := func(n int) string { return strings.Repeat("0123456789abcdef", n<<16) }
	const jsonType, mergeType = "application/json", "application/merge-patch+json"
	newSubscription, newPolicy := harness.PathOf(harness.Subscriptions, namespace, "", ""),
		harness.PathOf(harness.OperatorPolicies, cluster.PolicyNamespace, "", "")
	thePlan := harness.PathOf(harness.InstallPlans, namespace, waiting.GetName(), "")

	for name, test := range map[string]struct {
		method, path, contentType string
		body                      []byte
		says                      string // of the answer, if it matters who refuses and why
	}{
		"a Subscription of 2.5 MiB, to a foreign catalog": {
			method:      http.MethodPost,
			path:        newSubscription,
			contentType: jsonType,
			body: sub(harness.Spec("config",
				map[string]any{"env": []any{map[string]any{"name": "X",
					"value": megabytes(2) + megabytes(1)[:1<<19]}}})),
			says: "(subscription/catalog)",
		},
		"a Subscription whose spec is text": {
			method:      http.MethodPost,
			path:        newSubscription,
			contentType: jsonType,
			body:        sub(map[string]any{"spec": "etcd"}),
			says:        "",
		},
		"a Subscription with 9,000 levels": {
			method:      http.MethodPost,
			path:        newSubscription,
			contentType: jsonType,
			body:        nested(sub(harness.Spec("config", map[string]any{"affinity": levels})), 9000),
			says:        "",
		},
		"an approval with 2 MiB of reason": {
			method:      http.MethodPatch,
			path:        thePlan,
			contentType: mergeType,
			body: []byte(harness.Normal(
				map[string]any{"metadata": map[string]any{"annotations": map[string]any{"opgate.io/override-reason": megabytes(2)}}, "spec": map[string]any{"approved": true}})),
			says: "",
		},
		"a policy without a subscription": {
			method:      http.MethodPost,
			path:        newPolicy,
			contentType: jsonType,
			body:        operatorPolicy(harness.Spec("subscription", nil)),
			says:        "spec.subscription",
		},
		"a policy with 2,000 levels": {
			method:      http.MethodPost,
			path:        newPolicy,
			contentType: jsonType,
			body:        nested(operatorPolicy(harness.Spec("subscription", map[string]any{"config": levels})), 2000),
			says:        "spec.subscription.config",
		},
		"a policy of 2 MiB": {
			method:      http.MethodPost,
			path:        newPolicy,
			contentType: jsonType,
			body: operatorPolicy(harness.Spec("versions",
				strings.Split(strings.TrimSuffix(strings.Repeat(harness.AllowedCSV+" ", 2<<20/len(harness.AllowedCSV)),
					" "), " "))),
			says: "",
		},
		"a policy with a look-alike name": {
			method:      http.MethodPost,
			path:        newPolicy,
			contentType: jsonType,
			body:        operatorPolicy(harness.Spec("subscription", map[string]any{"name": "еtcd"})),
			says:        "must be ASCII",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := e.Clients[cluster.Admin].Must(t, harness.Request{
				Method:      test.method,
				Path:        test.path,
				ContentType: test.contentType,
				Body:        test.body,
			})
			if got.OK() {
				t.Errorf("it is stored: %.300s", got.Body)
				e.Remove(t, got.Object())
			}
			if !strings.Contains(got.Message, test.says) {
				t.Errorf("it is refused with %s, want %q", got, test.says)
			}
			// 500 is what the API server answers when a webhook failed, or what it returned made no sense.
			if got.Code == http.StatusInternalServerError {
				t.Errorf("it is refused with %s", got)
			}
			wantAlive(t, e)
		})
	}
	if approved, _, _ := unstructured.NestedBool(e.Stored(t, waiting).Object, "spec", "approved"); approved {
		t.Error("the plan is approved")
	}
}

// TestBigPlan judges a plan as big as etcd takes it, in the webhooks.
func TestBigPlan(t *testing.T) {
	e := harness.SharedWithoutBackstop(t)
	namespace := e.NewNamespace(t)
	u := harness.InstallPlan(namespace, "big", harness.ForbiddenVersion)
	resource := u.Object["status"].(map[string]any)["plan"].([]any)[0].(map[string]any)["resource"].(map[string]any)
	resource["manifest"] = `{"kind":"ClusterServiceVersion","metadata":{"annotations":{"filler":"` +
		strings.Repeat("0123456789abcdef", 1<<16) + `"}}}`
	e.Put(t, u)
	e.Put(t, harness.OperatorPolicy(namespace))
	e.Sync(t)
	for _, user := range []cluster.User{cluster.Tenant, cluster.Admin} {
		harness.WantRefused(t, e.Cluster, user, "",
			[]string{"patch", "installplan", "-n", namespace, "big", "--type=merge", "--patch",
				`{"spec":{"approved":true}}`}, harness.DeniedBy, "(bundle/version)")
		if got := tryPhase(t, e, user, u, "Installing"); !strings.Contains(got.Refused, "(bundle/version)") {
			t.Errorf("%s starts it: %s", user, got)
		}
	}
}

// TestTemplateText applies a policy with unresolved template text in its versions. It is stored, and what it governs is
// held.
func TestTemplateText(t *testing.T) {
	e := harness.Shared(t)
	namespace := e.NewNamespace(t)
	p := harness.OperatorPolicy(namespace)
	p.Object["spec"].(map[string]any)["versions"] = []any{`{{ fromConfigMap "policies" "pins" "etcd" }}`}
	e.Put(t, p)
	e.Sync(t)
	harness.WantRefused(t, e.Cluster, cluster.Tenant,
		harness.AsJSON(t, harness.Subscription(namespace, "etcd", harness.GoodCatalog, "Manual")),
		[]string{"create", "-f", "-"}, harness.DeniedBy, "(policy/unreadable)")
	u := e.Put(t, harness.InstallPlan(namespace, "waiting", harness.AllowedVersion))
	harness.WantRefused(t, e.Cluster, cluster.Admin, "",
		[]string{"patch", "installplan", "-n", namespace, u.GetName(), "--type=merge", "--patch",
			`{"spec":{"approved":true}}`}, harness.HeldBy, "(policy/unreadable)")
}

// TestG20HostileClient sends requests to the gate's own port. Every answer is a refusal or an error of HTTP, other
// clients are not affected, and no goroutines stay. It has the process to itself, since what others store takes
// goroutines too (a catalog has a connection), and begins when controllers seem to have started. If they have not, a
// round sees them start; what stays because of a client stays in each.
func TestG20HostileClient(t *testing.T) {
	e := harness.Vacant(t)
	e.StartGate(t, cluster.GateOptions{Loop: true})
	started := 0
	harness.Eventually(t, "see controllers start", func(context.Context) error {
		previous := started
		started = goroutines(t, e)
		time.Sleep(time.Second)
		if started != previous {
			return fmt.Errorf("%d goroutines, then %d", previous, started)
		}
		return nil
	})
	const rounds = 4
	for round := range rounds {
		before, now := goroutines(t, e), 0
		hostileRound(t, e)
		wantAlive(t, e)
		err := harness.Poll(t.Context(), harness.WaitTimeout/rounds, func(context.Context) (bool, error) {
			now = goroutines(t, e)
			return now <= before+10, nil // the API server's connections come and go
		})
		if err == nil {
			return
		}
		t.Logf("round %d: %d goroutines, %d before (%v)", round, now, before, err)
	}
	t.Error("each round of hostile clients leaves goroutines")
}

// hostileRound sends each request to each path once, begins reviews that do not end, and speaks no TLS, or an old one.
func hostileRound(t *testing.T, e *harness.Env) {
	client := &http.Client{
		Transport: speed.Transport(&http.Transport{
			TLSClientConfig:   e.Trust(),
			DisableKeepAlives: true,
		}, harness.WaitTimeout),
	}
	review := []byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","operation":"CREATE"}}`)
	for _, path := range []string{
		"/mutate/subscriptions", "/mutate/operatorpolicies", "/validate/subscriptions", "/validate/installplans",
		"/validate/installplans-status", "/validate/operatorpolicies", "/validate/policies", "/validate/policysets",
		"/", "/validate", "/metrics", "/debug/pprof/", "/validate/subscriptions/../installplans",
	} {
		for name, request := range map[string]struct {
			method, contentType string
			body                io.Reader
		}{
			"nothing": {method: http.MethodPost, contentType: "application/json"},
			"garbage": {
				method:      http.MethodPost,
				contentType: "application/json",
				body:        bytes.NewReader(bytes.Repeat([]byte{0xff, 0, '{'}, 1000)),
			},
			"GET": {method: http.MethodGet},
			"PUT": {
				method:      http.MethodPut,
				contentType: "application/json",
				body:        bytes.NewReader(review),
			},
			"DELETE":               {method: http.MethodDelete},
			"another content type": {method: http.MethodPost, contentType: "text/plain", body: bytes.NewReader(review)},
			"YAML": {
				method:      http.MethodPost,
				contentType: "application/yaml",
				body:        strings.NewReader("apiVersion: admission.k8s.io/v1\nkind: AdmissionReview\n"),
			},
			"no object": {method: http.MethodPost, contentType: "application/json", body: bytes.NewReader(review)},
			"10 MiB": {
				method:      http.MethodPost,
				contentType: "application/json",
				body:        bytes.NewReader(bytes.Repeat([]byte(" "), 10<<20)),
			},
			"10 MiB in chunks": {
				method:      http.MethodPost,
				contentType: "application/json",
				body:        struct{ io.Reader }{bytes.NewReader(bytes.Repeat([]byte(" "), 10<<20))},
			},
		} {
			t.Run(name+" to "+path, func(t *testing.T) {
				req, err := http.NewRequestWithContext(t.Context(), request.method, e.Gate.WebhookURL()+path,
					request.body)
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Content-Type", request.contentType)
				response, err := client.Do(req)
				if err != nil {
					// A client that is still sending when it is cut off may not see the answer.
					if !strings.HasPrefix(name, "10 MiB") {
						t.Error(err)
					}
					return
				}
				defer func() { _ = response.Body.Close() }()
				body, err := io.ReadAll(response.Body)
				if err != nil {
					t.Fatal(err)
				}
				wantNoAllow(t, response.StatusCode, body)
			})
		}
	}
	t.Run("slow bodies", func(t *testing.T) {
		// They wait for the rest of their reviews while others are answered.
		var slow []*begun
		for range 50 {
			slow = append(slow, begin(t, e))
		}
		wantAlive(t, e)
		namespace := e.NewNamespace(t)
		harness.Kubectl(t, e.Cluster, cluster.Tenant,
			harness.AsJSON(t, harness.Subscription(namespace, "etcd", harness.GoodCatalog, "Manual")), "create",
			"--dry-run=server", "-f", "-")
		slow[0].wantAnswer(t)
		for _, s := range slow {
			_ = s.connection.Close() // Opgate has closed it already if that took longer than it waits
		}
	})
	t.Run("no TLS", func(t *testing.T) {
		for _, text := range []string{"POST /validate/subscriptions HTTP/1.1\r\nHost: gate\r\nContent-Length: 2\r\n\r\n{}", "\x16\x03\x01", "\x00\x00\x00\x00", "EHLO gate\r\n"} {
			connection, err := (&net.Dialer{}).DialContext(t.Context(), "tcp",
				strings.TrimPrefix(e.Gate.WebhookURL(), "https://"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := connection.Write([]byte(text)); err != nil {
				t.Error(err)
			}
			if err := connection.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("old TLS", func(t *testing.T) {
		config := e.Trust()
		config.MinVersion, config.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
		connection, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp",
			strings.TrimPrefix(e.Gate.WebhookURL(), "https://"))
		if err == nil {
			_ = connection.Close()
			t.Error("TLS 1.1 is spoken")
		}
	})
}

// wantNoAllow wants an error of HTTP or a review that refuses.
func wantNoAllow(t *testing.T, code int, body []byte) {
	t.Helper()
	if code >= 300 && code < 500 {
		return
	}
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(body, &review); err != nil || code != http.StatusOK || review.Response == nil {
		t.Errorf("the answer is %d %.300s", code, body)
		return
	}
	if review.Response.Allowed || review.Response.Result == nil || review.Response.Result.Message == "" {
		t.Errorf("the answer allows, or does not say why not: %.300s", body)
	}
}

// wantAlive wants the process to run and to be ready.
func wantAlive(t *testing.T, e *harness.Env) {
	t.Helper()
	select {
	case <-e.Gate.Exited():
		t.Fatal("opgate has ended")
	default:
	}
	if code, body, err := harness.GetURL(t.Context(), e.Gate.HealthURL()+"/readyz"); err != nil ||
		code != http.StatusOK {
		t.Errorf("/readyz says %d %s (%v)", code, body, err)
	}
}

var goroutinesMetric = regexp.MustCompile(`(?m)^go_goroutines (\d+)$`)

// goroutines is how many the process has.
func goroutines(t *testing.T, e *harness.Env) int {
	t.Helper()
	_, body, err := harness.GetURL(t.Context(), e.Gate.MetricsURL())
	if err != nil {
		t.Fatal(err)
	}
	match := goroutinesMetric.FindStringSubmatch(body)
	if match == nil {
		t.Fatalf("no go_goroutines in %.500s", body)
	}
	n, err := strconv.Atoi(match[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}
