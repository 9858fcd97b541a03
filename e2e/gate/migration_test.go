package gate

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

const migrationPages = "../../docs/migration/"

// page returns the documents of all YAML blocks of a page on migration, but for those that show how it was before.
func page(t *testing.T, name string) []*unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(migrationPages, name))
	if err != nil {
		t.Fatal(err)
	}
	var objects []*unstructured.Unstructured
	for _, block := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		for document := range strings.SplitSeq(block[1], "\n---\n") {
			u := &unstructured.Unstructured{}
			if err := yaml.UnmarshalStrict([]byte(document), &u.Object); err != nil {
				t.Fatalf("%s: %v\n%s", name, err, document)
			}
			if !strings.HasPrefix(block[1], "# before\n") {
				objects = append(objects, u)
			}
		}
	}
	if len(objects) == 0 {
		t.Fatalf("%s has no YAML", name)
	}
	return objects
}

// TestMigrationPages applies what the pages on migration show, all that is served here: nothing is refused.
func TestMigrationPages(t *testing.T) {
	e := harness.Shared(t)
	files, err := filepath.Glob(migrationPages + "*.md")
	if err != nil || len(files) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			for _, u := range page(t, filepath.Base(file)) {
				switch u.GroupVersionKind().Group {
				case "argoproj.io", "kustomize.toolkit.fluxcd.io", "helm.toolkit.fluxcd.io", "source.toolkit.fluxcd.io":
					continue
				}
				if u.GetNamespace() != "" {
					e.EnsureNamespace(t, u.GetNamespace(), false)
				}
				resource := harness.Resources[u.GetKind()].GroupResource().WithVersion(u.GroupVersionKind().Version)
				_, err := e.Clients[cluster.Admin].Resource(resource).Namespace(u.GetNamespace()).Create(t.Context(), u,
					metav1.CreateOptions{
						DryRun:          []string{metav1.DryRunAll},
						FieldValidation: metav1.FieldValidationStrict,
					})
				if err != nil {
					t.Errorf("%s %s: %v", u.GetKind(), u.GetName(), err)
				}
			}
		})
	}
}
