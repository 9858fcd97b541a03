package matrix

import (
	"errors"
	"testing"
)

// TestReason: what is committed as the reason of a row is the same on every machine.
func TestReason(t *testing.T) {
	for text, want := range map[string]string{
		"build kube-apiserver: exit status 1; the compiler said:\n/home/me/go/pkg/mod/k8s.io/kubernetes@v1.31.14/app/config.go:23:2: verifying: reading https://proxy.test:8080/sumdb/x: 404 Not Found\nmore": "build kube-apiserver: exit status 1; the compiler said: k8s.io/kubernetes@v1.31.14/app/config.go:23:2: verifying: reading a server: 404 Not Found",
		"a test failed": "a test failed",
	} {
		if got := reason(errors.New(text)); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}
