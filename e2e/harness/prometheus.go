package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgate/opgate/e2e/assets"
	"github.com/opgate/opgate/e2e/internal/speed"
)

// Prometheus is a real one that scrapes Opgate every second.
type Prometheus struct{ address string }

// StartPrometheus starts Prometheus with a file of rules and the token of a scraper, until the end of the test.
func (e *Env) StartPrometheus(t testing.TB, rules, token string) *Prometheus {
	t.Helper()
	binaries, err := assets.FindPrometheus(t.Context(), assets.Options{Log: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(e.Gate.MetricsURL())
	if err != nil {
		t.Fatal(err)
	}
	// the directory of the cluster is removed with it
	dir := filepath.Join(filepath.Dir(filepath.Dir(e.Gate.LogPath())), "prometheus")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf(`
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [%s]
scrape_configs:
  - job_name: opgate
    scheme: %s
    authorization: {credentials_file: token}
    tls_config: {ca_file: ca.crt}
    static_configs: [{targets: [%q], labels: {pod: opgate-1}}]
`, rules, target.Scheme, target.Host)
	for name, text := range map[string]string{"prometheus.yaml": config, "token": token,
		"ca.crt": string(e.Gate.CA())} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	addresses, err := e.Addresses(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	process, err := e.StartCompanion(t.Context(), "prometheus", nil, binaries.Server,
		"--config.file="+filepath.Join(dir, "prometheus.yaml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+addresses[0], "--log.level=warn")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := process.Stop(); err != nil {
			t.Error(err)
		}
	})
	p := &Prometheus{address: addresses[0]}
	Eventually(t, "scrape opgate", func(ctx context.Context) error {
		if err := process.Err(); err != nil {
			t.Fatal(err)
		}
		samples, err := p.Query(ctx, `up{job="opgate"} == 1`)
		if err == nil && len(samples) == 0 {
			err = errors.New("it is not up")
		}
		return err
	})
	return p
}

// Sample is one of the result of a query.
type Sample struct {
	Labels map[string]string `json:"metric"`
	Value  [2]any            `json:"value"`
}

// String is the sample as in the format for scrapes, with its labels in no order.
func (s Sample) String() string { return fmt.Sprint(s.Labels, " ", s.Value[1]) }

// Query evaluates an expression that is a vector.
func (p *Prometheus) Query(ctx context.Context, expr string) ([]Sample, error) {
	var data struct {
		Result []Sample `json:"result"`
	}
	return data.Result, p.get(ctx, "/api/v1/query?"+url.Values{"query": {expr}}.Encode(), &data)
}

// UnhealthyRules returns the rules that have not been evaluated, or with an error.
func (p *Prometheus) UnhealthyRules(ctx context.Context) (unhealthy []string, number int, err error) {
	var data struct {
		Groups []struct {
			Rules []struct {
				Name, Health, LastError string
			} `json:"rules"`
		} `json:"groups"`
	}
	err = p.get(ctx, "/api/v1/rules", &data)
	for _, group := range data.Groups {
		number += len(group.Rules)
		for _, rule := range group.Rules {
			if rule.Health != "ok" {
				unhealthy = append(unhealthy, strings.TrimSpace(rule.Name+" "+rule.Health+" "+rule.LastError))
			}
		}
	}
	return unhealthy, number, err
}

// get reads the data of an answer of the API.
func (p *Prometheus) get(ctx context.Context, path string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.address+path, nil)
	if err != nil {
		return err
	}
	response, err := (&http.Client{Transport: speed.Transport(http.DefaultTransport, WaitTimeout)}).Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	answer := struct {
		Status, Error string
		Data          any
	}{Data: into}
	if err := json.Unmarshal(body, &answer); err != nil {
		return fmt.Errorf("prometheus: %d %.300s: %w", response.StatusCode, body, err)
	}
	if answer.Status != "success" {
		return fmt.Errorf("prometheus: %d %s", response.StatusCode, answer.Error)
	}
	return nil
}
