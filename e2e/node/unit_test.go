package node

import (
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/opgate/opgate/e2e/cluster"
)

func TestExpand(t *testing.T) {
	values := map[string]string{"A": "a", "B": "$(A)", "EMPTY": ""}
	for text, want := range map[string]string{
		"":                  "",
		"plain":             "plain",
		"$(A)":              "a",
		"x$(A)y$(A)z":       "xayaz",
		"$(B)":              "$(A)", // the input is not read again
		"$(EMPTY).":         ".",
		"$(UNKNOWN)":        "$(UNKNOWN)",
		"$$(A)":             "$(A)",
		"$$$(A)":            "$a",
		"$A ${A} $":         "$A ${A} $",
		"$(A":               "$(A",
		"$(UNKNOWN) $(A)":   "$(UNKNOWN) a",
		"--x=$(A)/$(EMPTY)": "--x=a/",
	} {
		if got := expand(text, values); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

func TestProgram(t *testing.T) {
	n := &Node{images: map[string]Program{
		"registry.example:5000/a":    {Path: "any"},
		"registry.example:5000/a:v2": {Path: "second"},
		"b":                          {Path: "b"},
	}}
	for image, want := range map[string]string{
		"registry.example:5000/a":               "any",
		"registry.example:5000/a:v1":            "any",
		"registry.example:5000/a:v2":            "second",
		"registry.example:5000/a:v2@sha256:abc": "second",
		"registry.example:5000/a@sha256:abc":    "any",
		"b:latest":                              "b",
		"registry.example:5000/b":               "",
		"registry.example":                      "",
	} {
		if got, ok := n.program(image); got.Path != want || ok != (want != "") {
			t.Errorf("%s is run by %q, want %q", image, got.Path, want)
		}
	}
}

func TestOpenLog(t *testing.T) {
	block := strings.Repeat("x", 32<<10)
	for _, test := range []struct {
		text  string
		lines int64
		want  string
	}{
		{"", -1, ""},
		{"", 0, ""},
		{"", 3, ""},
		{"a\nb\n", -1, "a\nb\n"},
		{"a\nb\n", 0, ""},
		{"a\nb\n", 1, "b\n"},
		{"a\nb\n", 2, "a\nb\n"},
		{"a\nb\n", 3, "a\nb\n"},
		{"a\nb", 1, "b"}, // it does not end yet
		{"a\n\n", 1, "\n"},
		{"\n", 1, "\n"},
		{"a\n" + block + "\nb\n", 1, "b\n"},
		{"a\n" + block + "\nb\n", 2, block + "\nb\n"},
		{"a\n" + block, 1, block},
		{"a\n" + block[1:] + "\n", 1, block[1:] + "\n"},
	} {
		path := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := openLog(path, test.lines)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(file)
		if err := errors.Join(err, file.Close()); err != nil || string(got) != test.want {
			t.Errorf("of %.20q the last %d lines are %.20q (%d bytes, %v), want %.20q", test.text, test.lines, got,
				len(got), err, test.want)
		}
	}
}

func TestPublish(t *testing.T) {
	dir := t.TempDir()
	for _, files := range []map[string][]byte{
		{"a": []byte("1"), "b": []byte("1"), "sub/c": []byte("1")},
		{"a": []byte("2"), "sub/d": []byte("2")},
		{},
		{"b": []byte("3")},
	} {
		if err := publish(dir, files); err != nil {
			t.Fatal(err)
		}
		got := map[string][]byte{}
		for _, path := range []string{"a", "b", "sub/c", "sub/d"} {
			if content, err := os.ReadFile(filepath.Join(dir, path)); err == nil {
				got[path] = content
			}
		}
		if !maps.EqualFunc(got, files, slices.Equal) {
			t.Errorf("there are %q, want %q", got, files)
		}
		// One link and one directory of data, and a link for each name.
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		tops := map[string]bool{}
		for path := range files {
			top, _, _ := strings.Cut(path, "/")
			tops[top] = true
		}
		if len(entries) != 2+len(tops) {
			t.Errorf("there are %v beside %q", entries, files)
		}
	}
}

// TestProbeOfAnotherProtocol: a probe by HTTP that reaches a server of HTTPS, or the other way round, is recognized,
// since it never succeeds.
func TestProbeOfAnotherProtocol(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/bad" {
			http.Error(w, "bad request", http.StatusBadRequest)
		}
	})
	plain, secure := httptest.NewServer(handler), httptest.NewTLSServer(handler)
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	p := &pod{addresses: map[int32]string{80: plain.Listener.Addr().String(), 443: secure.Listener.Addr().String()}}
	for _, test := range []struct {
		port     int32
		scheme   corev1.URIScheme
		path     string
		want     bool // that it succeeds
		mismatch bool
	}{
		{port: 80, scheme: corev1.URISchemeHTTP, want: true},
		{port: 80, scheme: corev1.URISchemeHTTP, path: "/bad"},
		{port: 80, scheme: corev1.URISchemeHTTPS, mismatch: true},
		{port: 443, scheme: corev1.URISchemeHTTPS, want: true},
		{port: 443, scheme: corev1.URISchemeHTTPS, path: "/bad"},
		{port: 443, scheme: corev1.URISchemeHTTP, mismatch: true},
	} {
		err := p.get(t.Context(), &corev1.HTTPGetAction{Port: intstr.FromInt32(test.port), Scheme: test.scheme,
			Path: test.path})
		if (err == nil) != test.want || errors.Is(err, http.ErrSchemeMismatch) != test.mismatch {
			t.Errorf("%s%s on port %d: %v", test.scheme, test.path, test.port, err)
		}
	}
}

// TestPortInUse runs a pod whose port another program has: tests end with the log of the pod.
func TestPortInUse(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	server, err := testServer()
	if err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]string{
		listener.Addr().String(): "bind: address already in use",
		"no address":             "", // it ends for another reason
	} {
		var failure error
		p := newPod(&Node{cluster: &cluster.Cluster{}, fail: func(err error) { failure = err }}, &corev1.Pod{})
		p.log = filepath.Join(t.TempDir(), "log")
		addresses := map[string]string{"webhook": address, "health": "127.0.0.1:0"}
		process, err := cluster.StartProgram(t.Context(), cluster.Program{
			Name: "server", Path: server.Path, Env: server.Env(Container{Addresses: addresses}), Log: p.log,
		})
		if err != nil {
			t.Fatal(err)
		}
		p.state.run()
		p.state.end(process.State())
		p.checkBind()
		if (failure == nil) != (want == "") || failure != nil && !strings.Contains(failure.Error(), want) {
			t.Errorf("the webhook listens on %s: %v, want %q", address, failure, want)
		}
	}
}
