package plugin

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// sampleWith returns the objects of a sample, one kind of them changed.
func sampleWith(
	t *testing.T, sample, kind string, change func(*unstructured.Unstructured),
) []*unstructured.Unstructured {
	t.Helper()
	objects := documents(t, "../../../manifests/samples/"+sample+".yaml")
	i := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == kind })
	if i < 0 {
		t.Fatalf("%s has no %s", sample, kind)
	}
	change(objects[i])
	return objects
}

// TestHostileNames prints names that plans may have, and terminals would obey.
func TestHostileNames(t *testing.T) {
	const name = "etcd\x1b]0;owned\x07\x1b[2Jv\u009b31m\u202e"
	var namespace, plan string
	kubeconfig := start(t, &server{objects: sampleWith(t, "bundle-version-deny", "InstallPlan",
		func(u *unstructured.Unstructured) {
			namespace, plan = u.GetNamespace(), u.GetName()
			if err := unstructured.SetNestedStringSlice(u.Object, []string{name}, "spec",
				"clusterServiceVersionNames"); err != nil {
				t.Fatal(err)
			}
		})})
	for _, tc := range []struct {
		code int
		args []string
	}{
		{args: []string{"pending", "-n", namespace}},
		{args: []string{"pending", "-n", namespace, "-o", "wide"}},
		{args: []string{"pending", "-n", namespace, "-o", "json"}},
		{args: []string{"pending", "-n", namespace, "-o", "yaml"}},
		{args: []string{"why", "installplan", namespace + "/" + plan}, code: exitRefused},
	} {
		got, code := run(t, command(tc.args[0]), append(tc.args[1:], "--kubeconfig", kubeconfig)...)
		if code != tc.code || !strings.Contains(got, "owned") || strings.ContainsAny(got, "\x1b\x07\u009b\u202e") {
			t.Errorf("%v: exit code %d, want %d: %q", tc.args, code, tc.code, got)
		}
	}
}

// TestUnreachable asks a server that does not answer.
func TestUnreachable(t *testing.T) {
	stopped := httptest.NewServer(http.NotFoundHandler())
	stopped.Close()
	kubeconfig := kubeconfigOf(t, stopped.URL)
	for _, args := range [][]string{{"pending"}, {"why", "installplan", "shop/x"}} {
		got, code := run(t, command(args[0]), append(args[1:], "--kubeconfig", kubeconfig)...)
		for _, text := range []string{stopped.URL + " cannot be reached", "connection refused"} {
			if code != exitUnusable || !strings.Contains(got, text) {
				t.Errorf("%v: exit code %d, want %d: %q is not in %s", args, code, exitUnusable, text, got)
			}
		}
	}
}
