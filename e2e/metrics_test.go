package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/opgate/opgate/e2e/cluster"
)

// newScraper makes a ServiceAccount, which may read metrics or not, and returns its token.
func (e *env) newScraper(t testing.TB, name string, may bool) string {
	t.Helper()
	kubectl(t, e.Cluster, cluster.Admin, "", "create", "serviceaccount", name, "-n", "default")
	if may {
		kubectl(t, e.Cluster, cluster.Admin, "", "create", "clusterrole", name, "--verb=get", "--non-resource-url=/metrics")
		kubectl(t, e.Cluster, cluster.Admin, "", "create", "clusterrolebinding", name, "--clusterrole="+name, "--serviceaccount=default:"+name)
	}
	return strings.TrimSpace(kubectl(t, e.Cluster, cluster.Admin, "", "create", "token", name, "-n", "default"))
}

// scrape reads metrics with a token, or without one.
func (e *env) scrape(ctx context.Context, token string) (code int, body string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, e.gate.MetricsURL(), nil)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	transport := &http.Transport{TLSClientConfig: e.trust(), DisableKeepAlives: true}
	response, err := (&http.Client{Transport: transport, Timeout: waitTimeout}).Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

// TestB7MetricsNamePolicies reads metrics as everybody in the cluster can, who sees numbers, and as a user with the right to,
// who sees names.
func TestB7MetricsNamePolicies(t *testing.T) {
	t.Parallel()
	e := &loopEnv{env: startWithoutGate(t)}
	kubectl(t, e.Cluster, cluster.Admin, packageManifests, "create", "-f", "-")
	var err error
	if e.gate, err = e.StartOpgate(t.Context(), cluster.GateOptions{Loop: true}); err != nil {
		t.Fatal(err)
	}
	e.connect(t)
	namespace := e.newNamespace(t) // which the policy has as its name
	e.put(t, policy(namespace))
	shows := func(token string, texts ...string) (body string) {
		t.Helper()
		eventually(t, "see the policy in metrics", func(ctx context.Context) error {
			code, text, err := e.scrape(ctx, token)
			if body = text; err != nil || code != http.StatusOK {
				return errors.Join(err, fmt.Errorf("metrics: %d %.300s", code, text))
			}
			for _, want := range texts {
				if !strings.Contains(text, want) {
					return fmt.Errorf("there is no %q", want)
				}
			}
			return nil
		})
		return body
	}
	// The operator is not there.
	count := `opgate_operatorpolicies{state="NonCompliant"} 1`
	if body := shows("", count); strings.Contains(body, namespace) || strings.Contains(body, cluster.PolicyNamespace+`"`) {
		t.Errorf("metrics for everybody name the policy:\n%s", body)
	}

	e.restart(t, cluster.GateOptions{Loop: true, SecureMetrics: true})
	allowed := e.newScraper(t, "prometheus", true)
	shows(allowed, count, fmt.Sprintf(`cluster_policy_governance_info{kind="OperatorPolicy",policy=%q,policy_namespace=%q,`, namespace, cluster.PolicyNamespace))
	for name, tc := range map[string]struct {
		token string
		code  int
	}{
		"no token":                  {"", http.StatusUnauthorized},
		"attack: a made-up token":   {"abc", http.StatusUnauthorized},
		"attack: half a token":      {allowed[:len(allowed)/2], http.StatusUnauthorized},
		"a token without the right": {e.newScraper(t, "curious", false), http.StatusForbidden},
	} {
		if code, body, err := e.scrape(t.Context(), tc.token); err != nil || code != tc.code || strings.Contains(body, namespace) {
			t.Errorf("%s: %d %.300s (%v), want %d", name, code, body, err, tc.code)
		}
	}
	plain := strings.Replace(e.gate.MetricsURL(), "https:", "http:", 1)
	if code, body, err := get(t.Context(), plain); err == nil && code == http.StatusOK || strings.Contains(body, namespace) {
		t.Errorf("by HTTP: %d %.300s (%v)", code, body, err)
	}
}
