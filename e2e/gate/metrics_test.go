package gate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// TestB7MetricsNamePolicies reads metrics as everybody in the cluster can, who sees numbers, and as a user with the
// right to, who sees names.
func TestB7MetricsNamePolicies(t *testing.T) {
	t.Parallel()
	e := &harness.LoopEnv{Env: harness.Vacant(t)}
	e.StartGate(t, cluster.GateOptions{Loop: true})
	namespace := e.NewNamespace(t) // which the policy has as its name
	e.Put(t, harness.WithField(harness.OperatorPolicy(namespace), "inform", "spec", "remediationAction"))
	shows := func(token string, patterns ...string) (body string) {
		t.Helper()
		harness.Eventually(t, "see the policy in metrics", func(ctx context.Context) error {
			code, text, err := e.Scrape(ctx, token)
			if body = text; err != nil || code != http.StatusOK {
				return errors.Join(err, fmt.Errorf("metrics: %d %.300s", code, text))
			}
			for _, want := range patterns {
				if !regexp.MustCompile(want).MatchString(text) {
					return fmt.Errorf("there is no %s", want)
				}
			}
			return nil
		})
		return body
	}
	const count = `opgate_operatorpolicies\{state="\w+"\} [1-9]`
	// a resource, not the namespace of that name
	body := strings.ReplaceAll(shows("", count), `resource="policies"`, "")
	if strings.Contains(body, namespace) || strings.Contains(body, `"`+cluster.PolicyNamespace+`"`) {
		t.Errorf("metrics for everybody name the policy:\n%s", body)
	}

	e.Restart(t, cluster.GateOptions{Loop: true, SecureMetrics: true})
	allowed := e.NewScraper(t, "prometheus", true)
	shows(allowed, count, fmt.Sprintf(
		`cluster_policy_governance_info\{kind="OperatorPolicy",policy=%q,policy_namespace=%q,`,
		namespace, cluster.PolicyNamespace))
	for name, tc := range map[string]struct {
		token string
		code  int
	}{
		"no token":                  {code: http.StatusUnauthorized},
		"attack: a made-up token":   {token: "abc", code: http.StatusUnauthorized},
		"attack: half a token":      {token: allowed[:len(allowed)/2], code: http.StatusUnauthorized},
		"a token without the right": {token: e.NewScraper(t, "curious", false), code: http.StatusForbidden},
	} {
		if code, body, err := e.Scrape(t.Context(), tc.token); err != nil || code != tc.code ||
			strings.Contains(body, namespace) {
			t.Errorf("%s: %d %.300s (%v), want %d", name, code, body, err, tc.code)
		}
	}
	plain := strings.Replace(e.Gate.MetricsURL(), "https:", "http:", 1)
	if code, body, err := harness.GetURL(t.Context(), plain); err == nil && code == http.StatusOK ||
		strings.Contains(body, namespace) {
		t.Errorf("by HTTP: %d %.300s (%v)", code, body, err)
	}
}
