package harness

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/internal/speed"
)

// NewScraper creates a ServiceAccount, with or without the right to read metrics, and returns its token.
func (e *Env) NewScraper(t testing.TB, name string, may bool) string {
	t.Helper()
	Kubectl(t, e.Cluster, cluster.Admin, "", "create", "serviceaccount", name, "-n", "default")
	Afterwards(t, e.Cluster, "delete", "serviceaccount", name, "-n", "default")
	if may {
		Kubectl(t, e.Cluster, cluster.Admin, "", "create", "clusterrole", name, "--verb=get",
			"--non-resource-url=/metrics")
		Kubectl(t, e.Cluster, cluster.Admin, "", "create", "clusterrolebinding", name, "--clusterrole="+name,
			"--serviceaccount=default:"+name)
		Afterwards(t, e.Cluster, "delete", "clusterrole/"+name, "clusterrolebinding/"+name)
	}
	return strings.TrimSpace(Kubectl(t, e.Cluster, cluster.Admin, "", "create", "token", name, "-n", "default"))
}

// Scrape reads metrics with a token, or without one.
func (e *Env) Scrape(ctx context.Context, token string) (code int, body string, err error) {
	return e.Request(ctx, http.MethodGet, "/metrics", token, "")
}

// Request sends a request to the server of metrics, with a token or without one.
func (e *Env) Request(ctx context.Context, method, path, token, content string) (code int, body string, err error) {
	target := strings.TrimSuffix(e.Gate.MetricsURL(), "/metrics") + path
	request, err := http.NewRequestWithContext(ctx, method, target, strings.NewReader(content))
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	transport := &http.Transport{TLSClientConfig: e.Trust(), DisableKeepAlives: true}
	response, err := (&http.Client{Transport: speed.Transport(transport, WaitTimeout)}).Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

// Trust is the TLS configuration of a client that trusts the gate.
func (e *Env) Trust() *tls.Config {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(e.Gate.CA())
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
}

// GetURL makes a plain HTTP request.
func GetURL(ctx context.Context, target string) (code int, body string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return 0, "", err
	}
	client := http.Client{Transport: speed.Transport(http.DefaultTransport, WaitTimeout)}
	response, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(response.Body)
	return response.StatusCode, string(data), err
}
