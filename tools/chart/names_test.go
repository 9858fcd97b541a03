package chart_test

import (
	"encoding/json"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/tools/chart"
)

// TestNames looks at each name that users may expect, and sets one: the schema lets it pass, and the refusal names a
// value that exists.
func TestNames(t *testing.T) {
	values, err := chart.Values(checkout)
	if err != nil {
		t.Fatal(err)
	}
	exists := func(path string) bool {
		return slices.ContainsFunc(values, func(v chart.Value) bool {
			return v.Path == path || strings.HasPrefix(v.Path, path+".")
		})
	}
	read := func(parts ...string) []byte {
		text, err := os.ReadFile(filepath.Join(append([]string{checkout.Chart()}, parts...)...))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	var schema struct {
		PatternProperties map[string]any `json:"patternProperties"`
	}
	if err := json.Unmarshal(read("values.schema.json"), &schema); err != nil || len(schema.PatternProperties) != 1 {
		t.Fatalf("the schema has patterns %v: %v", schema.PatternProperties, err)
	}
	passes := regexp.MustCompile(slices.Collect(maps.Keys(schema.PatternProperties))[0])
	names := regexp.MustCompile(`(?m)^ +"(\w+)" "([\w.]+)"`).FindAllStringSubmatch(
		string(read("templates", "_names.tpl")), -1)
	if len(names) < 20 {
		t.Fatalf("only %d names were read: %v", len(names), names)
	}
	for _, name := range names {
		if !exists(name[2]) {
			t.Errorf("%s: there is no value %s", name[1], name[2])
		}
		if !passes.MatchString(name[1]) {
			t.Errorf("the schema refuses %s", name[1])
		}
	}
	last := names[len(names)-1]
	want := "value " + last[1] + " does not exist in this chart: set " + last[2]
	if _, err := render(t.Context(), last[1]+": {}"); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got error %v\nwant it to say %s", err, want)
	}
}

// TestHelmTest looks at what "helm test" brings to the cluster: it may apply one policy, and gets no reviews.
func TestHelmTest(t *testing.T) {
	same(t, "rules", one[*rbacv1.Role](t, defaults, "opgate-test").Rules, []rbacv1.PolicyRule{{
		APIGroups: []string{"policy.open-cluster-management.io"}, Resources: []string{"operatorpolicies"},
		ResourceNames: []string{"opgate-verify"}, Verbs: []string{"create", "patch"},
	}})
	pod := one[*corev1.Pod](t, defaults, "opgate-test")
	for name, service := range of[*corev1.Service](defaults) {
		if labels.SelectorFromSet(service.Spec.Selector).Matches(labelSet(pod.Labels)) {
			t.Errorf("Service %s sends requests to it", name)
		}
	}
	out := one[*networkingv1.NetworkPolicy](t, defaults, "opgate-test").Spec
	if !labels.SelectorFromSet(out.PodSelector.MatchLabels).Matches(labelSet(pod.Labels)) {
		t.Errorf("the network policy is for %v, not for %v", out.PodSelector.MatchLabels, pod.Labels)
	}
	same(t, "ways out", out.Egress, one[*networkingv1.NetworkPolicy](t, defaults, "opgate").Spec.Egress)
	for key, object := range defaults {
		annotations := object.GetAnnotations()
		same(t, "whether only helm test creates "+key, annotations["helm.sh/hook"] == "test",
			object.GetName() == "opgate-test")
		if annotations["helm.sh/hook"] == "test" {
			_, logs := object.(*corev1.Pod)
			same(t, "whether only the pod stays: "+key,
				!strings.Contains(annotations["helm.sh/hook-delete-policy"], "hook-succeeded"), logs)
		}
	}
}

// TestIcon wants the chart's icon to be a file of this repository.
func TestIcon(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(checkout.Chart(), "Chart.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var fields struct{ Home, Icon string }
	if err := yaml.Unmarshal(text, &fields); err != nil {
		t.Fatal(err)
	}
	icon, err := url.Parse(fields.Icon)
	if err != nil {
		t.Fatal(err)
	}
	path, ok := strings.CutPrefix(icon.Path, strings.TrimPrefix(fields.Home, "https://github.com")+"/main/")
	if !ok || icon.Host != "raw.githubusercontent.com" {
		t.Fatalf("%s is not a file of %s", icon, fields.Home)
	}
	if picture, err := os.ReadFile(filepath.Join(checkout.Root, path)); err != nil ||
		!strings.Contains(string(picture), "<svg") {
		t.Errorf("%s is no SVG picture: %v", path, err)
	}
}
