package manager

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
)

// apiServer stores one Lease and counts writes of other objects.
type apiServer struct {
	mu sync.Mutex
	// lease is the Lease, nil if it does not exist. version is its resourceVersion.
	lease   *coordinationv1.Lease
	version int
	// down makes every request of the Lease fail.
	down bool
	// writes are the times of writes of other objects.
	writes []time.Time
}

// RoundTrip answers a request.
func (s *apiServer) RoundTrip(req *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !strings.Contains(req.URL.Path, "/leases") {
		s.writes = append(s.writes, time.Now())
		return answer(http.StatusNotFound, nil), nil
	}
	if s.down {
		return nil, io.ErrUnexpectedEOF
	}
	var sent coordinationv1.Lease
	if req.Body != nil {
		if err := json.NewDecoder(req.Body).Decode(&sent); err != nil {
			return nil, err
		}
	}
	refused := func(reason metav1.StatusReason, code int32) (*http.Response, error) {
		return answer(int(code), metav1.Status{Status: metav1.StatusFailure, Reason: reason, Code: code}), nil
	}
	switch {
	case req.Method == http.MethodPost && s.lease != nil,
		req.Method == http.MethodPut && (s.lease == nil || sent.ResourceVersion != s.lease.ResourceVersion):
		return refused(metav1.StatusReasonConflict, http.StatusConflict)
	case req.Method != http.MethodGet:
		s.store(&sent)
	case s.lease == nil:
		return refused(metav1.StatusReasonNotFound, http.StatusNotFound)
	}
	return answer(http.StatusOK, s.lease), nil
}

func (s *apiServer) store(lease *coordinationv1.Lease) {
	s.version++
	lease.ResourceVersion = strconv.Itoa(s.version)
	s.lease = lease
}

func answer(code int, object any) *http.Response {
	body, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(body))}
}

func (s *apiServer) setDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

// steal makes another replica the holder of the Lease for a time.
func (s *apiServer) steal(holder string, seconds int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	stolen := s.lease.DeepCopy()
	stolen.Spec.HolderIdentity, stolen.Spec.LeaseDurationSeconds = &holder, &seconds
	stolen.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
	s.store(stolen)
}

// holder returns who holds the Lease.
func (s *apiServer) holder() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *s.lease.Spec.HolderIdentity
}

// written returns the number of writes since a time.
func (s *apiServer) written(since time.Time) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, at := range s.writes {
		if !at.Before(since) {
			n++
		}
	}
	return n
}

// writer is a runnable that writes ten times a second, also when this replica leads no more, as a reconciliation would
// that was on its way.
func writer(ctx context.Context, config *rest.Config, running *sync.WaitGroup) (ctrlmanager.RunnableFunc, error) {
	client, err := kubernetes.NewForConfig(config)
	return func(context.Context) error {
		running.Go(func() {
			for ctx.Err() == nil {
				_ = client.CoreV1().ConfigMaps("shop").Delete(ctx, "etcd", metav1.DeleteOptions{})
				time.Sleep(100 * time.Millisecond)
			}
		})
		return nil
	}, err
}

// replica competes for the Lease, with a clock of its own.
type replica struct {
	lease    *Lease
	registry *prometheus.Registry
	stop     func()
	// suspended is for how long the machine was suspended: the wall clock has advanced, the monotonic one and timers
	// have not.
	suspended atomic.Int64
	// acquired is how often the Lease was acquired, ended when the replica stopped to lead; zero while it has not.
	acquired, ended atomic.Int64
}

func (r *replica) now() time.Time {
	if d := time.Duration(r.suspended.Load()); d > 0 {
		return time.Now().Round(0).Add(d)
	}
	return time.Now()
}

// leading returns the metric.
func (r *replica) leading(t *testing.T) float64 {
	t.Helper()
	families, err := r.registry.Gather()
	if err != nil || len(families) != 1 {
		t.Fatal(families, err)
	}
	return families[0].GetMetric()[0].GetGauge().GetValue()
}

// start runs a replica until the test ends.
func start(t *testing.T, server *apiServer) *replica {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	config := &rest.Config{Host: "http://server", Transport: server, QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	r := &replica{registry: prometheus.NewRegistry()}
	var err error
	lost := func() {
		r.ended.CompareAndSwap(0, time.Now().UnixNano())
		stop()
	}
	if r.lease, err = NewLease(config, "opgate-system", "pod", lost, r.now); err != nil {
		t.Fatal(err)
	}
	r.lease.OnAcquired(func(map[string]string) { r.acquired.Add(1) })
	mgr, err := New(config, r.lease, r.registry, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	writing, endWrites := context.WithCancel(t.Context())
	writes, err := writer(writing, mgr.GetConfig(), &running)
	if err != nil {
		t.Fatal(err)
	}
	if err := mgr.Add(writes); err != nil {
		t.Fatal(err)
	}
	running.Go(func() {
		if err := mgr.Start(ctx); err != nil {
			t.Error(err)
		}
		if ctx.Err() == nil {
			lost()
		}
	})
	r.stop = func() {
		stop()
		endWrites()
		running.Wait()
	}
	t.Cleanup(r.stop)
	return r
}

// TestLost: writes end with the Lease, whatever controllers do, and the replica learns at once that it leads no more.
func TestLost(t *testing.T) {
	const ages = 3600 // seconds
	for _, test := range []struct {
		name string
		// happens is what happens to a replica that leads.
		happens func(*apiServer, *replica)
		// after is how long it may still write.
		after time.Duration
		// lost is whether it leads no more.
		lost bool
	}{
		{name: "the machine is suspended while another replica takes over",
			happens: func(s *apiServer, r *replica) {
				r.suspended.Store(int64(20 * time.Second))
				s.steal("other", ages)
			}, lost: true},
		{name: "another replica takes the Lease", after: retryPeriod,
			happens: func(s *apiServer, _ *replica) { s.steal("other", ages) }, lost: true},
		{name: "the Lease is released by another client", after: retryPeriod,
			happens: func(s *apiServer, _ *replica) { s.steal("", 1) }, lost: true},
		{name: "the API server does not answer", after: validity,
			happens: func(s *apiServer, _ *replica) { s.setDown(true) }, lost: true},
		{name: "the API server answers again, too late", after: validity,
			happens: func(s *apiServer, _ *replica) {
				s.setDown(true)
				time.AfterFunc(validity+time.Second/2, func() { s.setDown(false) })
			}, lost: true},
		{name: "the machine is suspended for a moment",
			happens: func(_ *apiServer, r *replica) { r.suspended.Store(int64(renewDeadline - time.Second)) },
			after:   retryPeriod},
		{name: "the machine is suspended, and no replica takes over",
			happens: func(_ *apiServer, r *replica) { r.suspended.Store(int64(20 * time.Second)) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &apiServer{}
				r := start(t, server)
				time.Sleep(10 * time.Second)
				if server.written(time.Now().Add(-time.Second)) == 0 || r.leading(t) != 1 || r.acquired.Load() != 1 {
					t.Fatalf("the replica does not lead: leading %v, acquired %d", r.leading(t), r.acquired.Load())
				}
				began := time.Now()
				test.happens(server, r)
				if (r.leading(t) == 1) != (test.after > 0) {
					t.Errorf("opgate_loop_leading is %v at once", r.leading(t))
				}
				time.Sleep(max(test.after, retryPeriod) + time.Millisecond)
				synctest.Wait()
				from := time.Now()
				time.Sleep(time.Minute)
				if writes := server.written(from) > 0; writes == test.lost || (r.leading(t) == 1) == test.lost {
					t.Errorf("%s later: it writes: %t, opgate_loop_leading is %v", from.Sub(began), writes, r.leading(t))
				}
				ended := r.ended.Load()
				// It may still ask an API server that does not answer for the Lease, to release it.
				if (ended != 0) != test.lost || ended > from.Add(requestTimeout).UnixNano() {
					t.Errorf("told %s later that it leads no more", time.Unix(0, ended).Sub(began))
				}
				if r.acquired.Load() != 1 {
					t.Errorf("the Lease was acquired %d times", r.acquired.Load())
				}
			})
		})
	}
}

// TestRelease: another replica can acquire the Lease at once when one ends.
func TestRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &apiServer{}
		r := start(t, server)
		time.Sleep(time.Second)
		if server.holder() == "" {
			t.Error("no replica holds the Lease")
		}
		r.stop()
		if got := server.holder(); got != "" {
			t.Errorf("%q holds the Lease after its end", got)
		}
	})
}

// TestAnnotateOfAnother: annotations of the Lease are written by its holder only.
func TestAnnotateOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &apiServer{}
		r := start(t, server)
		time.Sleep(time.Second)
		if err := r.lease.Annotate(t.Context(), "opgate.io/escapes", "one"); err != nil {
			t.Error(err)
		}
		server.steal("other", 3600)
		if err := r.lease.Annotate(t.Context(), "opgate.io/escapes", "two"); err == nil {
			t.Error("written to the Lease of another replica")
		}
		if got := server.lease.Annotations["opgate.io/escapes"]; got != "one" {
			t.Errorf("the annotation is %q, want one", got)
		}
	})
}

// TestTakeOver: a replica that was killed is followed within a time that is known.
func TestTakeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &apiServer{}
		server.store(&coordinationv1.Lease{})
		server.lease.Name = LeaseName
		server.steal("killed", int32(leaseDuration/time.Second))
		killed := time.Now()
		r := start(t, server)
		for r.leading(t) != 1 {
			time.Sleep(100 * time.Millisecond)
		}
		// It reads the Lease each 2 to 4.4 seconds.
		if took := time.Since(killed); took < leaseDuration || took > leaseDuration+5*time.Second {
			t.Errorf("took over after %s", took)
		}
	})
}

// TestLeaseOfAnother: a replica that could not renew the Lease while another one acquired it does not release it,
// whenever it reaches the API server again.
func TestLeaseOfAnother(t *testing.T) {
	for again := time.Duration(0); again < validity+retryPeriod; again += retryPeriod / 8 {
		synctest.Test(t, func(t *testing.T) {
			server := &apiServer{}
			start(t, server)
			time.Sleep(retryPeriod)
			server.setDown(true)
			server.steal("other", 3600)
			time.Sleep(again)
			server.setDown(false)
			time.Sleep(validity + retryPeriod)
			if got := server.holder(); got != "other" {
				t.Errorf("after %s without the API server: the holder is %q, want other", again, got)
			}
		})
	}
}
