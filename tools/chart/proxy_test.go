package chart_test

import (
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/net/http/httpproxy"
)

// TestProxy renders the chart with the variables that docs/install.md shows for clusters with a proxy, and asks the
// library of net/http by them: calls to the API server do not go to the proxy, others do.
func TestProxy(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(checkout.Root, "docs", "install.md"))
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```yaml\n(extraEnv:.*?NO_PROXY.*?)```").FindSubmatch(page)
	if block == nil {
		t.Fatal("docs/install.md has no extraEnv with NO_PROXY")
	}
	variables := map[string]string{}
	for _, variable := range container(t, mustRender(t, string(block[1]))).Env {
		variables[variable.Name] = variable.Value
	}
	for _, host := range []string{"10.96.0.1", "fd00:10:96::1"} { // as the kubelet has it
		config := httpproxy.Config{
			HTTPProxy: variables["HTTP_PROXY"], HTTPSProxy: variables["HTTPS_PROXY"],
			NoProxy: strings.ReplaceAll(variables["NO_PROXY"], "$(KUBERNETES_SERVICE_HOST)", host),
		}
		server := &url.URL{Scheme: "https", Host: host + ":443"}
		if strings.Contains(host, ":") {
			server.Host = "[" + host + "]:443"
		}
		for target, proxied := range map[*url.URL]bool{
			server: false,
			{Scheme: "https", Host: "kubernetes.default.svc"}:                   false,
			{Scheme: "https", Host: "kubernetes.default.svc.cluster.local:443"}: false,
			{Scheme: "https", Host: "registry.example.com"}:                     true,
			{Scheme: "https", Host: "10.96.0.2"}:                                true,
		} {
			if proxy, err := config.ProxyFunc()(target); err != nil || (proxy != nil) != proxied {
				t.Errorf("calls to %s go to proxy %v (%v)", target, proxy, err)
			}
		}
	}
}
