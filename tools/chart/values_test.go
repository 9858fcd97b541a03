package chart_test

import (
	"bytes"
	"flag"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/diff"
	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/tools/chart"
)

var update = flag.Bool("update", false, "write what values change into "+valuesFile)

// valuesFile has values, NAME.yaml, and what they change of what is rendered by default, NAME.diff.
const valuesFile = "testdata/values.txtar"

// TestValues renders the chart with each value that it documents. What they change is in valuesFile.
func TestValues(t *testing.T) {
	archive, err := txtar.ParseFile(valuesFile)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, f := range archive.Files {
		files[f.Name] = string(f.Data)
	}
	tried, changed := map[string]bool{}, map[string]string{}
	var mu sync.Mutex
	t.Run("of", func(t *testing.T) {
		for file, values := range files {
			name, isCase := strings.CutSuffix(file, ".yaml")
			if !isCase {
				continue
			}
			var set map[string]any
			if err := yaml.UnmarshalStrict([]byte(values), &set); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			addPaths(tried, "", set)
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				got := changes(t, mustRender(t, values))
				if got == "" {
					t.Errorf("these values change nothing:\n%s", values)
				}
				if want := files[name+".diff"]; !*update && got != want {
					t.Errorf("%s says otherwise; -args -update writes it (-want +got):\n%s", valuesFile, cmp.Diff(want, got))
				}
				mu.Lock()
				defer mu.Unlock()
				changed[name] = got
			})
		}
	})
	values, err := chart.Values(checkout)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range values {
		if !tried[v.Path] {
			t.Errorf("%s does not set %s", valuesFile, v.Path)
		}
	}
	if !*update {
		return
	}
	written := txtar.Archive{Comment: archive.Comment}
	for _, f := range archive.Files {
		if name, isCase := strings.CutSuffix(f.Name, ".yaml"); isCase {
			written.Files = append(written.Files, f, txtar.File{Name: name + ".diff", Data: []byte(changed[name])})
		}
	}
	if err := os.WriteFile(valuesFile, txtar.Format(&written), 0o600); err != nil {
		t.Fatal(err)
	}
}

var (
	// ofRelease are lines and parts of some that differ from release to release.
	ofRelease = regexp.MustCompile(`(?m)^ +(helm\.sh/chart|app\.kubernetes\.io/version): .*\n|(?:opgate/opgate):v?\d\S*`)
	// ofAll are lines that all objects have.
	ofAll = regexp.MustCompile(`(?m)^(apiVersion|kind): .*\n|^    app\.kubernetes\.io/[\w-]+: .*\n|^  name: .*\n|^  labels:\n|^metadata:\n|^status: .*\n`)
)

// changes returns the objects that are there, or not, other than by default, and the lines that differ. Objects of which
// the same lines differ are together. TestAlertsAndDashboard compares alerts and the dashboard with their files.
func changes(t *testing.T, o objects) string {
	t.Helper()
	all := maps.Clone(defaults)
	maps.Copy(all, o)
	var order []string
	objects := map[string][]string{} // by what differs
	for _, key := range slices.Sorted(maps.Keys(all)) {
		before, now := defaults[key], o[key]
		var differs strings.Builder
		switch {
		case now == nil:
			key = "- " + key
		case before == nil:
			key = "+ " + key
			for line := range strings.Lines(ofAll.ReplaceAllString(textOf(t, now), "")) {
				differs.WriteString("+" + line)
			}
		default:
			differs.WriteString(differing(textOf(t, before), textOf(t, now)))
			if differs.Len() == 0 {
				continue
			}
		}
		text := differs.String()
		if objects[text] == nil {
			order = append(order, text)
		}
		objects[text] = append(objects[text], key)
	}
	var b strings.Builder
	for _, text := range order {
		b.WriteString(strings.Join(objects[text], "\n") + "\n" + text)
	}
	return b.String()
}

// textOf returns an object in YAML, without the contents of files.
func textOf(t *testing.T, object metav1.Object) string {
	t.Helper()
	switch object := object.(type) {
	case *prometheusRule:
		object.Spec = ruleGroups{}
	case *corev1.ConfigMap:
		object.Data = nil
	}
	text, err := yamlOf(object)
	if err != nil {
		t.Fatal(err)
	}
	return ofRelease.ReplaceAllString(text, "")
}

// differing returns the lines that differ, as diff marks them.
func differing(before, now string) string {
	var b strings.Builder
	n := 0
	for line := range bytes.Lines(diff.Diff("before", []byte(before), "now", []byte(now))) {
		if n++; n > 3 && (line[0] == '+' || line[0] == '-') { // what is before is its head
			b.Write(line)
		}
	}
	return b.String()
}

// addPaths adds the path of everything that is set, maps included.
func addPaths(paths map[string]bool, prefix string, values map[string]any) {
	for key, value := range values {
		paths[prefix+key] = true
		if inner, ok := value.(map[string]any); ok {
			addPaths(paths, prefix+key+".", inner)
		}
	}
}

// same wants two things to be equal.
func same[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// gone wants that there is no object of a type with the name.
func gone[T metav1.Object](t *testing.T, o objects, name string) {
	t.Helper()
	if object, ok := of[T](o)[name]; ok {
		t.Errorf("there is a %T %s", object, name)
	}
}
