package chart_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgate/opgate/e2e/assets"
	"github.com/opgate/opgate/tools/chart"
)

// TestHelm3Renders wants Helm 3 to make the same objects of the chart as Helm 4, and to refuse the same values in the
// same words.
func TestHelm3Renders(t *testing.T) {
	helm3, err := assets.FindHelm3(t.Context(), assets.Options{Log: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	document, err := os.ReadFile(filepath.Join(checkout.Root, "docs", "install.md"))
	if err != nil {
		t.Fatal(err)
	}
	for path, prefix := range map[string]string{helm: "v4.", helm3: "v3."} {
		version, _, _ := strings.Cut(strings.TrimSpace(mustOutput(t, path, "version", "--short")), "+")
		if !strings.HasPrefix(version, prefix) {
			t.Fatalf("it is helm %s", version)
		}
		if !strings.Contains(string(document), " "+version[1:]) {
			t.Errorf("docs/install.md does not name %s", version)
		}
	}
	both := func(args ...string) (want, got objects) {
		var decoded []objects
		for _, path := range []string{helm, helm3} {
			documents, err := chart.Render(t.Context(), path, checkout.Chart(), namespace,
				append(args, "--set", setOLM)...)
			if err != nil {
				t.Fatal(err)
			}
			o, err := decode(documents)
			if err != nil {
				t.Fatal(err)
			}
			decoded = append(decoded, o)
		}
		return decoded[0], decoded[1]
	}
	for _, values := range []string{
		"replicas=2",
		"certificates.mode=cert-manager",
		"metrics.secure=true,metrics.serviceMonitor.enabled=true,metrics.prometheusRule.enabled=true,metrics.dashboard.enabled=true",
		"imagePullSecrets={a},global.imagePullSecrets[0].name=b,global.imageRegistry=mirror.example,commonAnnotations.a=b",
		"ordering.enabled=false,policy.backgroundLoop.enabled=false,policy.reports.enabled=true,policy.excludedNamespaces={a,b}",
	} {
		want, got := both("--set", values)
		same(t, values, got, want)
	}
	want, got := both("--api-versions", "security.openshift.io/v1")
	same(t, "on OpenShift", got, want)

	for _, values := range []string{"repicas=3", "log.level=loud", "replicas=0", "failurePolicy=Fail",
		"extraEnv[0].name=POD_NAMESPACE", "olm.identities={a}"} {
		refusal := func(path string) string {
			_, err := chart.Render(t.Context(), path, checkout.Chart(), namespace, "--set", setOLM+","+values)
			if err == nil {
				t.Errorf("%s renders %s", path, values)
				return ""
			}
			_, text, _ := strings.Cut(err.Error(), "exit status 1: ")
			return text
		}
		same(t, "refusal of "+values, refusal(helm3), refusal(helm))
	}
	mustOutput(t, helm3, "lint", "--strict", checkout.Chart(), "--set", setOLM)
}
