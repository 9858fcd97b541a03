package chart_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/opgate/opgate/e2e/assets"
	"github.com/opgate/opgate/e2e/chart"
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

// TestOverlays builds the overlays and compares them with what the chart makes of the same certificates.
func TestOverlays(t *testing.T) {
	for _, mode := range []string{"self-managed", "cert-manager"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			documents, err := chart.Render(t.Context(), helm, checkout.Chart(), baseNamespace, "--set", "certificates.mode="+mode)
			if err != nil {
				t.Fatal(err)
			}
			want, err := decode(documents)
			if err != nil {
				t.Fatal(err)
			}
			for key, object := range want {
				labels := object.GetLabels()
				if labels["app.kubernetes.io/managed-by"] != "Helm" || labels["helm.sh/chart"] == "" {
					t.Errorf("%s is not labelled as helm's: %v", key, labels)
				}
				delete(labels, "app.kubernetes.io/managed-by")
				delete(labels, "helm.sh/chart")
			}
			got := kustomize(t, filepath.Join(checkout.Manifests(), "overlays", mode))
			home := keyOf("v1", "Namespace", baseNamespace)
			if home, ok := got[home].(*corev1.Namespace); !ok || home.Labels["pod-security.kubernetes.io/enforce"] != "restricted" {
				t.Errorf("the namespace is %v", home)
			}
			delete(got, home)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("kustomize and helm disagree (-helm +kustomize):\n%s", diff)
			}
		})
	}
}

// TestKustomizeNamespace shows why docs/install.md advises against another namespace by kustomize: these places keep the name of
// the old one.
func TestKustomizeNamespace(t *testing.T) {
	dir := t.TempDir()
	overlay, err := filepath.Rel(realpath(t, dir), realpath(t, filepath.Join(checkout.Manifests(), "overlays", "cert-manager")))
	if err != nil {
		t.Fatal(err)
	}
	text := "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nnamespace: elsewhere\nresources: [" + overlay + "]\n"
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

// mentions tells whether an object has a text anywhere.
func mentions(t *testing.T, object metav1.Object, text string) bool {
	t.Helper()
	data, err := yamlOf(object)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(data, text)
}
