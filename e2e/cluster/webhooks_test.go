package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

const (
	mutatingManifest = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: opgate}
webhooks:
- name: subscriptions.opgate.io
  clientConfig: {service: {namespace: opgate-system, name: opgate}}
  failurePolicy: Fail
`
	validatingManifest = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: opgate}
webhooks:
- name: subscriptions.opgate.io
  clientConfig: {service: {namespace: opgate-system, name: opgate}}
  failurePolicy: Fail
`
)

func writeManifest(t *testing.T, documents ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "webhooks.yaml")
	if err := os.WriteFile(path, []byte(strings.Join(documents, "\n---\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReadWebhooksChangesOnlyWhereTheyAre(t *testing.T) {
	path := writeManifest(t, "# a comment", mutatingManifest, validatingManifest)
	objects, err := readWebhooks(path, target{url: "https://127.0.0.1:20000", ca: []byte("ca")})
	if err != nil {
		t.Fatal(err)
	}
	if len(objects) != 2 {
		t.Fatalf("got %d objects, want 2", len(objects))
	}
	webhook := objects[1].(*admissionregistrationv1.ValidatingWebhookConfiguration).Webhooks[0]
	if got, want := *webhook.ClientConfig.URL, "https://127.0.0.1:20000"; got != want {
		t.Errorf("got URL %s, want %s", got, want)
	}
	if webhook.ClientConfig.Service != nil || string(webhook.ClientConfig.CABundle) != "ca" {
		t.Errorf("got %+v, want no service and the CA given", webhook.ClientConfig)
	}
	if *webhook.FailurePolicy != admissionregistrationv1.Fail {
		t.Errorf("got failurePolicy %s, want Fail", *webhook.FailurePolicy)
	}
}

func TestReadWebhooksRefusesWhatItWouldNotTest(t *testing.T) {
	tests := map[string]struct {
		documents []string
		want      string
	}{
		"a kind is missing": {
			documents: []string{mutatingManifest},
			want:      "want a MutatingWebhookConfiguration and a ValidatingWebhookConfiguration",
		},
		"a kind appears twice": {
			documents: []string{mutatingManifest, validatingManifest, mutatingManifest},
			want:      "unexpected or repeated admissionregistration.k8s.io/v1, Kind=MutatingWebhookConfiguration",
		},
		"another kind": {
			documents: []string{mutatingManifest, validatingManifest, "apiVersion: v1\nkind: Service"},
			want:      "unexpected or repeated /v1, Kind=Service",
		},
		"a field that does not exist": {
			documents: []string{mutatingManifest, strings.ReplaceAll(validatingManifest, "failurePolicy",
				"failPolicy")},
			want: `unknown field "failPolicy"`,
		},
		"a path": {
			documents: []string{mutatingManifest, strings.ReplaceAll(validatingManifest, "system, name: opgate}",
				"system, name: opgate, path: /validate}")},
			want: "webhook subscriptions.opgate.io: clientConfig has no service, or one with a path",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := readWebhooks(writeManifest(t, test.documents...), target{url: "https://127.0.0.1:20000"})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want it to say %q", err, test.want)
			}
		})
	}
}
