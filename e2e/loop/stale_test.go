package loop

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// stalls is a proxy before the API server that withholds what watches are sent: connections, lists and all other
// requests go on.
type stalls struct {
	kubeconfig string

	mu sync.Mutex
	// withheld is the resource whose watches are sent nothing, "*" for all; "" for none. changed is closed when it is
	// replaced.
	withheld string
	changed  chan struct{}
}

// newStalls starts a proxy with the credentials of Opgate.
func newStalls(t *testing.T, c *cluster.Cluster) *stalls {
	t.Helper()
	config, err := c.RESTConfig(cluster.Opgate)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	to, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	s := &stalls{changed: make(chan struct{}), kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	server := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport:     transport,
		FlushInterval: -1,
		ModifyResponse: func(r *http.Response) error {
			if r.Request.URL.Query().Get("watch") == "true" {
				r.Body = &stalledBody{ReadCloser: r.Body, stalls: s, request: r.Request}
			}
			return nil
		},
	})
	t.Cleanup(server.CloseClientConnections)
	kubeconfig := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}],
users: [{name: a, user: {}}], clusters: [{name: a, cluster: {server: %q}}]}`, server.URL)
	if err := os.WriteFile(s.kubeconfig, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	return s
}

// withhold sends nothing more to the watches of a resource, and to others what was withheld.
func (s *stalls) withhold(resource string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.withheld = resource
	close(s.changed)
	s.changed = make(chan struct{})
}

// stalledBody is what a watch is sent.
type stalledBody struct {
	io.ReadCloser
	stalls  *stalls
	request *http.Request
}

// Read implements io.Reader.
func (b *stalledBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	for {
		b.stalls.mu.Lock()
		withheld, changed := b.stalls.withheld, b.stalls.changed
		b.stalls.mu.Unlock()
		if withheld != "*" && withheld != path.Base(b.request.URL.Path) {
			return n, err
		}
		select {
		case <-changed:
		case <-b.request.Context().Done():
			return 0, b.request.Context().Err()
		}
	}
}

// TestG1Stalled stalls watches of Opgate and wants that it neither approves nor admits by what it has seen before
// (threat G1).
func TestG1Stalled(t *testing.T) {
	t.Parallel()
	e := &harness.LoopEnv{Env: harness.Vacant(t)}
	e.Connect(t)
	start := func() *stalls {
		s := newStalls(t, e.Cluster)
		e.StartGate(t, cluster.GateOptions{Loop: true, Args: []string{"--kubeconfig=" + s.kubeconfig,
			"--max-staleness=10s"}})
		gate := e.Gate
		t.Cleanup(func() {
			if _, err := gate.Stop(); err != nil {
				t.Error(err)
			}
		})
		return s
	}
	leader := start()
	t.Run("policies of the leader", func(t *testing.T) { leaderStalled(t, e, leader) })
	standby := start()
	t.Run("all watches of a follower", func(t *testing.T) { followerStalled(t, e, standby) })
}

// readiness returns an error unless /readyz has a text.
func readiness(ctx context.Context, e *harness.LoopEnv, code int, text string) error {
	got, body, err := harness.GetURL(ctx, e.Gate.HealthURL()+"/readyz")
	if err == nil && (got != code || !strings.Contains(body, text)) {
		err = fmt.Errorf("/readyz: %d %s", got, body)
	}
	return err
}

// leaderStalled stalls the watch of policies alone, and then edits one to forbid the version of the next plan.
func leaderStalled(t *testing.T, e *harness.LoopEnv, leader *stalls) {
	namespace := operatorNamespace(t, e)
	p := harness.OperatorPolicy(namespace)
	e.Write(t, p)
	e.Propose(t, namespace, "install-1", harness.AllowedVersion)
	e.WaitApproved(t, namespace, "install-1")
	e.WaitCondition(t, namespace, "InstallPlanCompliant", "True", "was approved")

	leader.withhold("operatorpolicies")
	e.Patch(t, cluster.Admin, p, fmt.Sprintf(`{"spec":{"versions":[%q]}}`, harness.ForbiddenCSV))
	e.Propose(t, namespace, "install-2", harness.AllowedVersion)
	harness.Eventually(t, "not ready", func(ctx context.Context) error {
		if e.Approved(ctx, namespace, "install-2") == nil {
			t.Fatal("a forbidden version was approved")
		}
		return readiness(ctx, e, http.StatusServiceUnavailable, "the watch of operatorpolicies shows no progress")
	})
	page, err := e.Metrics(t.Context())
	if want := "opgate_watch_stale{resource=\"operatorpolicies\"} 1\n"; err != nil || !strings.Contains(page, want) {
		t.Errorf("metrics lack %s (%v)", want, err)
	}
	approve := harness.InstallPlan(namespace, "install-2", harness.AllowedVersion)
	err = e.Admin.Patch(t.Context(), approve, crclient.RawPatch("application/merge-patch+json",
		[]byte(`{"spec":{"approved":true}}`)))
	if err == nil || !strings.Contains(err.Error(), "(gate/stale): its watch of operatorpolicies shows no progress") {
		t.Errorf("an approval meanwhile: %v", err)
	}
	pause(t, 2*restFor)
	e.WantApproved(t, namespace, "install-2", false)

	leader.withhold("")
	took := harness.Time(t, "ready again",
		func(ctx context.Context) error { return readiness(ctx, e, http.StatusOK, "watches ok") })
	t.Logf("ready %s after the stall", took)
	e.WaitCondition(t, namespace, "InstallPlanCompliant", "False", harness.AllowedCSV+" is not allowed")
	e.WantApproved(t, namespace, "install-2", false)
	e.Propose(t, namespace, "install-3", harness.ForbiddenVersion)
	e.WaitApproved(t, namespace, "install-3")
}

// followerStalled stalls all watches of the replica that the API server asks, which does not lead.
func followerStalled(t *testing.T, e *harness.LoopEnv, standby *stalls) {
	namespace := operatorNamespace(t, e)
	create := func(ctx context.Context) error {
		return e.Admin.Create(ctx, harness.Subscription(namespace, "etcd", harness.GoodCatalog, "Manual"),
			crclient.DryRunAll)
	}
	if err := create(t.Context()); err != nil {
		t.Fatal(err)
	}
	standby.withhold("*")
	held := harness.Time(t, "held", func(ctx context.Context) error {
		if err := create(ctx); err == nil || !strings.Contains(err.Error(), "(gate/stale)") {
			return fmt.Errorf("it is admitted: %w", err)
		}
		return readiness(ctx, e, http.StatusServiceUnavailable, "[-]watches failed: the watch of ")
	})
	standby.withhold("")
	again := harness.Time(t, "admitted again", func(ctx context.Context) error {
		if err := create(ctx); err != nil {
			return err
		}
		return readiness(ctx, e, http.StatusOK, "watches ok")
	})
	t.Logf("held %s after the stall began, judged again %s after it", held, again)
}
