package helmchart_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/e2e/assets"
	"github.com/opgate/opgate/e2e/assets/repo"
	"github.com/opgate/opgate/tools/release/helmchart"
)

const digest = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

func findCheckout(t *testing.T) repo.Checkout {
	t.Helper()
	checkout, err := repo.Find()
	if err != nil {
		t.Fatal(err)
	}
	return checkout
}

func findHelm(t *testing.T) helmchart.Helm {
	t.Helper()
	path, err := assets.FindHelm(t.Context(), assets.Options{Log: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	return helmchart.Helm{Path: path}
}

// packaged packages Opgate's chart as it is.
func packaged(t *testing.T) (helmchart.Helm, string) {
	t.Helper()
	helm := findHelm(t)
	annotations, err := helmchart.Annotations("ghcr.io/opgate/opgate:v9.8.7-rc.1@"+digest, true,
		[]helmchart.Change{{Kind: "added", Description: "a: b"}})
	if err != nil {
		t.Fatal(err)
	}
	file, err := helm.Package(t.Context(), findCheckout(t).Chart(), t.TempDir(), helmchart.Options{
		Version: "9.8.7-rc.1", AppVersion: "v9.8.7-rc.1", ImageDigest: digest, Annotations: annotations,
		Created: time.Unix(1_700_000_000, 0),
	})
	if err != nil {
		t.Fatal(err)
	}
	return helm, file
}

// show is what helm reads of a package: chart or values.
func show(t *testing.T, helm helmchart.Helm, file, what string) []byte {
	t.Helper()
	out, err := exec.Command(helm.Path, "show", what, file).Output()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestPackage(t *testing.T) {
	helm, file := packaged(t)
	if filepath.Base(file) != "opgate-9.8.7-rc.1.tgz" {
		t.Errorf("the package is %s", file)
	}
	var chart struct {
		Version, AppVersion string
		Annotations         map[string]string
	}
	if err := yaml.Unmarshal(show(t, helm, file, "chart"), &chart); err != nil {
		t.Fatal(err)
	}
	if chart.Version != "9.8.7-rc.1" || chart.AppVersion != "v9.8.7-rc.1" ||
		chart.Annotations["artifacthub.io/category"] != "security" {
		t.Errorf("Chart.yaml has %+v", chart)
	}
	source, err := os.ReadFile(filepath.Join(findCheckout(t).Chart(), "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	want := bytes.Replace(source, []byte(`digest: ""`), []byte(`digest: "`+digest+`"`), 1)
	if diff := cmp.Diff(strings.TrimSpace(string(want)),
		strings.TrimSpace(string(show(t, helm, file, "values")))); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}

	var definitions, changes []map[string]string
	for name, into := range map[string]*[]map[string]string{"artifacthub.io/crds": &definitions,
		"artifacthub.io/changes": &changes} {
		if err := yaml.Unmarshal([]byte(chart.Annotations[name]), into); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if diff := cmp.Diff([]map[string]string{{"kind": "added", "description": "a: b"}}, changes); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	var kinds []string
	for _, definition := range definitions {
		kinds = append(kinds, definition["kind"])
		if definition["description"] == "" {
			t.Errorf("%s has no description", definition["kind"])
		}
	}
	slices.Sort(kinds)
	if diff := cmp.Diff([]string{"Constraint", "OperatorPolicy", "Policy", "PolicySet"}, kinds); diff != "" {
		t.Errorf("definitions (-want +got):\n%s", diff)
	}
	if got := chart.Annotations["artifacthub.io/prerelease"]; got != "true" {
		t.Errorf("prerelease is %q", got)
	}
}

// TestChartWithoutDigest wants a chart whose values have changed to fail, and not to go without the digest.
func TestChartWithoutDigest(t *testing.T) {
	for name, values := range map[string]string{
		"is gone":   "image: {}\n",
		"a number":  "image:\n  digest: 1\n",
		"no quotes": "image:\n  digest: sha256\n",
	} {
		dir := t.TempDir()
		for file, text := range map[string]string{"Chart.yaml": "apiVersion: v2\nname: opgate\nversion: 0.0.1\n",
			"values.yaml": values} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, err := findHelm(t).Package(t.Context(), dir, t.TempDir(),
			helmchart.Options{Version: "0.1.0", AppVersion: "v0.1.0", ImageDigest: digest})
		if err == nil || !strings.Contains(err.Error(), "image.digest") {
			t.Errorf("%s: got error %v, want it to name the value", name, err)
		}
	}
}
