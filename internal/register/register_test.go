package register

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func write(t *testing.T, files map[string]string) string {
	t.Helper()
	directory := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(directory, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return directory
}

const (
	webhooks = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: opgate}
webhooks:
  - {name: a.opgate.io, clientConfig: {service: {name: opgate-webhook, namespace: opgate-system}}}
  - {name: b.opgate.io, clientConfig: {service: {name: opgate-webhook, namespace: opgate-system}}}
`
	definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: operatorpolicies.policy.open-cluster-management.io}
spec: {conversion: {webhook: {clientConfig: {service: {name: opgate-webhook, namespace: elsewhere}}}}}
`
)

func TestRead(t *testing.T) {
	objects, err := read(write(t, map[string]string{
		"webhooks.yaml":    webhooks + "---\n# nothing\n---" + webhooks,
		"definitions.yaml": definition,
		"notes.txt":        "not read",
	}))
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, object := range objects {
		kinds = append(kinds, object.GetKind())
	}
	const configuration = "ValidatingWebhookConfiguration"
	if want := []string{"CustomResourceDefinition", configuration, configuration}; !slices.Equal(kinds, want) {
		t.Errorf("got %q, want %q: a webhook may not take effect before what it judges is defined", kinds, want)
	}
}

func TestReadRejects(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		says  string
	}{
		"nothing":                {says: "holds no manifest"},
		"a role":                 {files: map[string]string{"a.yaml": "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: a}}"}, says: `ClusterRole "a" cannot be registered`},
		"a kind of other makers": {files: map[string]string{"a.yaml": "{apiVersion: example.com/v1, kind: CustomResourceDefinition, metadata: {name: a}}"}, says: "example.com/v1"},
		"without a name":         {files: map[string]string{"a.yaml": "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition}"}, says: `""`},
		"no YAML":                {files: map[string]string{"a.yaml": "a: [b"}, says: "a.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := read(write(t, test.files)); err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got error %v, want it to say %q", err, test.says)
			}
		})
	}
}

func TestNamespaceThatIsShared(t *testing.T) {
	objects, err := read(write(t, map[string]string{"a.yaml": webhooks}))
	if err != nil {
		t.Fatal(err)
	}
	if err := wantNamespace(objects[0], "opgate-system"); err != nil {
		t.Errorf("its own namespace is rejected: %v", err)
	}
	err = wantNamespace(objects[0], "operators")
	if err == nil || !strings.Contains(err.Error(),
		"ValidatingWebhookConfiguration opgate calls namespace opgate-system, this process runs in operators") {
		t.Errorf("got %v", err)
	}
}

func TestLater(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want bool
	}{
		{a: "v0.2.0", b: "v0.1.0", want: true},
		{a: "v0.10.0", b: "v0.9.0", want: true},
		{a: "v0.1.0", b: "v0.1.0"},
		{a: "v0.1.0", b: "v0.2.0"},
		{a: "v0.2.0", b: "v0.2.0-rc.1", want: true},
		{a: "", b: "v0.1.0"},
		{a: "devel", b: "v0.1.0"},
		{a: "v0.2.0", b: "devel"},
	} {
		if got := later(test.a, test.b); got != test.want {
			t.Errorf("%q is later than %q: got %t, want %t", test.a, test.b, got, test.want)
		}
	}
}
