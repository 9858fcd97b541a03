package clusterversion

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/testr"
	"k8s.io/client-go/rest"

	"github.com/opgate/opgate/internal/memnet"
	"github.com/opgate/opgate/rules/facts"
)

func TestKubernetesVersion(t *testing.T) {
	for _, tc := range []struct{ gitVersion, want string }{
		{"v1.36.3", "1.36.3"},
		{"1.36.3", "1.36.3"},
		{"v1.34.1-eks-3cfe0ce", "1.34.1"},
		{"v1.33.4-gke.1172000", "1.33.4"},
		{"v1.31.5+k3s1", "1.31.5"},
		{"v1.35.0-rc.1+abc-def", "1.35.0"},
		{"v1.32.7+abc-1", "1.32.7"},
		{"v0.0.0-master+$Format:%H$", "0.0.0"},
		{"v1.36", "1.36.0"},
		{"", ""},
		{"latest", ""},
	} {
		got, err := kubernetesVersion(tc.gitVersion)
		if got != tc.want || (err == nil) != (tc.want != "") {
			t.Errorf("%q: got %q, %v; want %q", tc.gitVersion, got, err, tc.want)
		}
	}
}

// server responds like API servers that the tests do not have: OpenShift, and one that fails.
type server struct {
	mu        sync.Mutex
	version   string        // "" fails
	openShift string        // "" for a cluster that is not OpenShift
	forbidden bool          // reading ClusterVersions is forbidden
	read      chan struct{} // receives a token for each read
}

func (s *server) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	version, openShift, forbidden := s.version, s.openShift, s.forbidden
	if r.URL.Path == "/version" {
		s.read <- struct{}{}
	}
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	answer := func(code int, body any) {
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(body)
	}
	refuse := func(code int, reason string) {
		answer(code, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason,
			"code": code})
	}
	switch {
	case r.URL.Path == "/version" && version == "":
		refuse(http.StatusInternalServerError, "InternalError")
	case r.URL.Path == "/version":
		answer(http.StatusOK, map[string]any{"gitVersion": version})
	case openShift == "":
		refuse(http.StatusNotFound, "NotFound")
	case r.URL.Path == "/apis/config.openshift.io/v1":
		answer(http.StatusOK, map[string]any{"kind": "APIResourceList", "apiVersion": "v1",
			"groupVersion": "config.openshift.io/v1",
			"resources": []any{map[string]any{"name": "clusterversions", "kind": "ClusterVersion",
				"verbs": []string{"get"}}}})
	case forbidden, r.URL.Path != "/apis/config.openshift.io/v1/clusterversions/version":
		refuse(http.StatusForbidden, "Forbidden")
	default:
		answer(http.StatusOK, map[string]any{"apiVersion": "config.openshift.io/v1", "kind": "ClusterVersion",
			"metadata": map[string]any{"name": "version"},
			"status":   map[string]any{"desired": map[string]any{"version": openShift}}})
	}
}

// serve returns the configuration of clients of a server. It runs in memory, and so in synthetic time.
func serve(t *testing.T, s *server) *rest.Config {
	t.Helper()
	s.read = make(chan struct{}, 100)
	network := memnet.Listen()
	srv := &httptest.Server{Listener: network, Config: &http.Server{Handler: s}}
	srv.Start()
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	return &rest.Config{Host: "http://server", Dial: func(ctx context.Context, _, _ string) (net.Conn,
		error) {
		return network.Dial(ctx, "client")
	}}
}

// start runs a watcher against a server; the channel receives the arguments of Changed.
func start(t *testing.T, s *server) (*Watcher, <-chan facts.Cluster) {
	t.Helper()
	config := serve(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	notified := make(chan facts.Cluster, 10)
	w := New(Options{Config: config, Log: testr.New(t), Changed: func(c facts.Cluster) { notified <- c }})
	done := make(chan error, 1)
	go func() { done <- w.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return w, notified
}

func expect(t *testing.T, notified <-chan facts.Cluster, kubernetes, openShift string) {
	t.Helper()
	select {
	case c := <-notified:
		if c.Version != kubernetes || c.OpenShift != openShift {
			t.Fatalf("notified Kubernetes %q, OpenShift %q; want %q, %q", c.Version, c.OpenShift, kubernetes, openShift)
		}
	case <-time.After(time.Hour):
		t.Fatalf("no notification; want Kubernetes %q, OpenShift %q", kubernetes, openShift)
	}
}

// nothing waits until all that is being done is done.
func nothing(t *testing.T, notified <-chan facts.Cluster) {
	t.Helper()
	synctest.Wait()
	select {
	case c := <-notified:
		t.Fatalf("notified %+v", c)
	default:
	}
}

func TestKubernetesUpgradeIsNoticedOnRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{version: "v1.35.1-eks-1"}
		w, notified := start(t, s)
		expect(t, notified, "1.35.1", "")
		s.set(func() { s.version = "v1.35.1-eks-2" }) // another build of the same version
		w.Refresh()
		<-s.read
		<-s.read
		nothing(t, notified)
		s.set(func() { s.version = "v1.36.0" })
		w.Refresh()
		expect(t, notified, "1.36.0", "")
		nothing(t, notified)
	})
}

func TestVersionIsReadWithRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		_, notified := start(t, s)
		<-s.read
		nothing(t, notified)
		s.set(func() { s.version = "v1.36.3" })
		expect(t, notified, "1.36.3", "")
	})
}

func TestOpenShift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{version: "v1.32.9", openShift: "4.19.3"}
		_, notified := start(t, s)
		expect(t, notified, "1.32.9", "4.19.3") // never one without the other
		s.set(func() { s.openShift = "4.20.0" })
		expect(t, notified, "1.32.9", "4.20.0") // without a Refresh
	})
}

func TestOpenShiftThatMayNotBeReadDoesNotHideKubernetes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, notified := start(t, &server{version: "v1.32.9", openShift: "4.19.3", forbidden: true})
		expect(t, notified, "1.32.9", "")
	})
}

func TestReadOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		server     *server
		kubernetes string
		openShift  string
		fails      bool
	}{
		"kubernetes":          {&server{version: "v1.36.3"}, "1.36.3", "", false},
		"openshift":           {&server{version: "v1.32.9", openShift: "4.19.3"}, "1.32.9", "4.19.3", false},
		"openshift forbidden": {&server{version: "v1.32.9", openShift: "4.19.3", forbidden: true}, "1.32.9", "", true},
		"failing":             {&server{}, "", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got, err := Read(t.Context(), serve(t, tc.server))
				if got.Version != tc.kubernetes || got.OpenShift != tc.openShift || (err != nil) != tc.fails {
					t.Errorf("got %+v, %v", got, err)
				}
			})
		})
	}
}
