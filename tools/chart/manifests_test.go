package chart_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/opgate/opgate/e2e/assets"
	"github.com/opgate/opgate/tools/chart"
)

// baseNamespace is the one of plain manifests.
const baseNamespace = "opgate-system"

// TestGenerated holds the files that are made from the chart to the chart.
func TestGenerated(t *testing.T) {
	files, err := chart.Generate(t.Context(), helm, checkout)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(checkout.Manifests(), name))
		if err != nil {
			t.Error(err)
			continue
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("%s is out of date: run 'make generate' (-want +got):\n%s", name, diff)
		}
	}
}

// kustomize builds a directory with the kustomize that is in kubectl.
func kustomize(t *testing.T, dir string) objects {
	t.Helper()
	found, err := assets.Find(t.Context(), assets.Options{})
	if err != nil {
		t.Fatal(err)
	}
	documents, err := chart.Split(mustOutput(t, found.Kubectl(), "kustomize", dir))
	if err != nil {
		t.Fatal(err)
	}
	o, err := decode(documents)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// openShiftOLM is who OLM is on OpenShift.
const openShiftOLM = "system:serviceaccount:openshift-operator-lifecycle-manager:olm-operator-serviceaccount"

// TestOverlays builds the overlays and compares them with what the chart makes of the same values.
func TestOverlays(t *testing.T) {
	for overlay, args := range map[string][]string{
		"self-managed": {"--set", setOLM},
		"cert-manager": {"--set", setOLM + ",certificates.mode=cert-manager"},
		"openshift":    {"--set", "olm.identity=" + openShiftOLM, "--api-versions", "security.openshift.io/v1"},
	} {
		t.Run(overlay, func(t *testing.T) {
			t.Parallel()
			want := asPlain(t, args...)
			got := kustomize(t, filepath.Join(checkout.Manifests(), "overlays", overlay))
			home := keyOf("v1", "Namespace", baseNamespace)
			if home, ok := got[home].(*corev1.Namespace); !ok ||
				home.Labels["pod-security.kubernetes.io/enforce"] != "restricted" {
				t.Errorf("the namespace is %v", home)
			}
			delete(got, home)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("kustomize and helm disagree (-helm +kustomize):\n%s", diff)
			}
		})
	}
}

// TestKustomizeOLM builds what docs/install.md shows for an OLM that is elsewhere, and for a component on top of
// cert-manager's overlay: one source feeds arguments, permissions and conditions, and no other account is left.
func TestKustomizeOLM(t *testing.T) {
	config := func(identity, account, uid string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: opgate-olm\n  annotations: {config.kubernetes.io/local-config: \"true\"}\n" +
			"data:\n  identity: " + identity + "\n  account: " + account + "\n  namespaceUID: \"" + uid +
			"\"\n  catalogNamespace: catalogs\n"
	}
	for name, test := range map[string]struct{ overlay, component, config, identity, account, uid string }{
		"upstream": {
			overlay:  "self-managed",
			identity: chart.OLM, account: "olm-operator-serviceaccount",
		},
		"OpenShift with cert-manager": {
			overlay:   "cert-manager",
			component: "openshift",
			identity:  openShiftOLM, account: "olm-operator-serviceaccount",
		},
		"elsewhere, and younger": {
			overlay:   "cert-manager",
			component: "olm-identity",
			config:    config("system:serviceaccount:lifecycle:olm.account", "olm.account", "0c2b"),
			identity:  "system:serviceaccount:lifecycle:olm.account", account: "olm.account", uid: "0c2b",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			relative := func(parts ...string) string {
				path, err := filepath.Rel(realpath(t, dir),
					realpath(t, filepath.Join(append([]string{checkout.Manifests()}, parts...)...)))
				if err != nil {
					t.Fatal(err)
				}
				return path
			}
			text := "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n  - " +
				relative("overlays", test.overlay) + "\n"
			if test.config != "" {
				text += "  - olm.yaml\n"
				if err := os.WriteFile(filepath.Join(dir, "olm.yaml"), []byte(test.config), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if test.component != "" {
				text += "components:\n  - " + relative("components", test.component) + "\n"
			}
			if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			o := kustomize(t, dir)
			checkIdentity(t, o, test.identity, test.account)
			same(t, "--olm-namespace-uid", flagsOf(t, o)["olm-namespace-uid"], []string{test.uid})
			gone[*corev1.ConfigMap](t, o, "opgate-olm")
			for key, object := range o {
				if other := map[bool]string{true: openShiftOLM,
					false: chart.OLM}[test.identity == chart.OLM]; mentions(t, object, other) {
					t.Errorf("%s still names %s", key, other)
				}
			}
		})
	}
}

// TestKustomizeReports builds what docs/reports.md shows: the component grants and sets what the chart does with
// policy.reports.enabled.
func TestKustomizeReports(t *testing.T) {
	got, want := withComponent(t, "reports"), mustRender(t, "policy: {reports: {enabled: true}}")
	same(t, "--reports", flagsOf(t, got)["reports"], flagsOf(t, want)["reports"])
	same(t, "rules", one[*rbacv1.ClusterRole](t, got, "opgate-reports").Rules,
		one[*rbacv1.ClusterRole](t, want, "opgate-reports").Rules)
	same(t, "role", one[*rbacv1.ClusterRoleBinding](t, got, "opgate-reports").RoleRef,
		one[*rbacv1.ClusterRoleBinding](t, want, "opgate-reports").RoleRef)
	same(t, "subject", one[*rbacv1.ClusterRoleBinding](t, got, "opgate-reports").Subjects[0].Name, "opgate")
}

// TestKustomizeMonitoring builds the component for Prometheus and Grafana, and compares it with what the chart makes of
// the same values.
func TestKustomizeMonitoring(t *testing.T) {
	got := withComponent(t, "monitoring")
	for _, endpoint := range one[*serviceMonitor](t, got, "opgate").Spec.Endpoints {
		same(t, "port", endpoint, monitorEndpoint{Port: "metrics"})
	}
	same(t, "namespaces", one[*serviceMonitor](t, got, "opgate").Spec.NamespaceSelector.MatchNames,
		[]string{baseNamespace})
	same(t, "alerts", one[*prometheusRule](t, got, "opgate").alerts(), alertsFile(t))
	same(t, "dashboard", one[*corev1.ConfigMap](t, got, "opgate-dashboard").Data["opgate.json"],
		string(chartFile(t, "dashboard.json")))
}

// TestKustomizeWithout builds the components that take a part away: all objects are those of the chart with the same
// values, but for the order of flags.
func TestKustomizeWithout(t *testing.T) {
	for component, values := range map[string]string{
		"without-ordering":    "ordering.enabled=false",
		"external-definition": "ordering.enabled=false,crds.operatorPolicy=external",
	} {
		t.Run(component, func(t *testing.T) {
			got, want := withComponent(t, component), asPlain(t, "--set", setOLM+","+values)
			for name, flags := range flagsOf(t, want) { // the last one of a name counts
				given := flagsOf(t, got)[name]
				same(t, "--"+name, given[max(0, len(given)-len(flags)):], flags)
			}
			delete(got, keyOf("v1", "Namespace", baseNamespace))
			for _, o := range []objects{got, want} {
				delete(o, keyOf("apps/v1", "Deployment", "opgate"))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("kustomize and helm disagree (-helm +kustomize):\n%s", diff)
			}
		})
	}
}

// asPlain renders the chart, without what is about helm.
func asPlain(t *testing.T, args ...string) objects {
	t.Helper()
	documents, err := chart.Render(t.Context(), helm, checkout.Chart(), baseNamespace, append(args, "--skip-tests")...)
	if err != nil {
		t.Fatal(err)
	}
	rendered, err := decode(documents)
	if err != nil {
		t.Fatal(err)
	}
	for key, object := range rendered {
		labels := object.GetLabels()
		if labels["app.kubernetes.io/managed-by"] != "Helm" || labels["helm.sh/chart"] == "" {
			t.Errorf("%s is not labelled as helm's: %v", key, labels)
		}
		delete(labels, "app.kubernetes.io/managed-by")
		delete(labels, "helm.sh/chart")
	}
	return rendered
}

// withComponent builds the overlay self-managed with a component.
func withComponent(t *testing.T, name string) objects {
	t.Helper()
	dir := t.TempDir()
	relative := func(parts ...string) string {
		path, err := filepath.Rel(realpath(t, dir),
			realpath(t, filepath.Join(append([]string{checkout.Manifests()}, parts...)...)))
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	text := "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [" +
		relative("overlays", "self-managed") +
		"]\ncomponents: [" + relative("components", name) + "]\n"
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return kustomize(t, dir)
}

// TestKustomizeNamespace shows why docs/install.md advises against another namespace by kustomize: these places keep
// the name of the old one.
func TestKustomizeNamespace(t *testing.T) {
	dir := t.TempDir()
	overlay, err := filepath.Rel(realpath(t, dir),
		realpath(t, filepath.Join(checkout.Manifests(), "overlays", "cert-manager")))
	if err != nil {
		t.Fatal(err)
	}
	text := "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nnamespace: elsewhere\nresources: [" +
		overlay + "]\n"
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var left []string
	for key, object := range kustomize(t, dir) {
		if mentions(t, object, baseNamespace) {
			left = append(left, strings.TrimSuffix(key[strings.Index(key, " ")+1:], " "))
		}
	}
	slices.Sort(left)
	same(t, "objects that still name it", left, []string{
		"Certificate opgate-webhook",
		"ClusterRole opgate-certs",
		"CustomResourceDefinition " + policyDefinition,
		"MutatingWebhookConfiguration opgate",
		"ValidatingWebhookConfiguration opgate",
	})
}

func realpath(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// mentions reports whether an object has a text anywhere.
func mentions(t *testing.T, object metav1.Object, text string) bool {
	t.Helper()
	data, err := yamlOf(object)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(data, text)
}
