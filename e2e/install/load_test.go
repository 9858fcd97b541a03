package install

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/e2e/internal/speed"
)

const (
	// loadRate is how many requests come in each second on a machine of usual speed, loadMost how many at most,
	// whatever happens.
	loadRate = 25
	loadMost = 60_000
	// loadWaiting is how many may be under way at the same time.
	loadWaiting = 100
)

// underLoad makes requests that the API server has Opgate judge or convert, and others, while something goes on. None
// may fail.
func (s *Site) underLoad(t *testing.T, namespace string, during func(), others ...Try) {
	t.Helper()
	wantNone(t, s.load(t, loadRate, namespace, during, others...))
}

// load is underLoad with a rate. It returns why requests failed.
func (s *Site) load(t *testing.T, rate time.Duration, namespace string, during func(), others ...Try) []error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var (
		loading, waiting sync.WaitGroup
		slots            = make(chan struct{}, loadWaiting)
		mu               sync.Mutex
		sent             int
		failures         []error
	)
	requests := []func(context.Context) error{s.converts(namespace)}
	for _, try := range append(tries(namespace), others...) {
		requests = append(requests, func(ctx context.Context) error { return s.Attempt(ctx, try) })
	}
	began := time.Now()
	loading.Go(func() {
		ticker := time.NewTicker(speed.Scale(time.Second / rate))
		defer ticker.Stop()
		for ; ctx.Err() == nil && sent < loadMost; sent++ {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			slots <- struct{}{}
			request := requests[sent%len(requests)]
			waiting.Go(func() {
				defer func() { <-slots }()
				// Those that are under way at the end are to end well, too.
				if err := request(t.Context()); err != nil {
					mu.Lock()
					defer mu.Unlock()
					failures = append(failures, fmt.Errorf("after %s: %w", time.Since(began).Round(time.Millisecond),
						err))
				}
			})
		}
	})
	func() {
		defer loading.Wait()
		defer cancel() // also if during ends the test
		during()
	}()
	waiting.Wait()
	took := time.Since(began)
	t.Logf("%d requests in %s, %.0f each second, %d failed", sent, took.Round(time.Second),
		float64(sent)/took.Seconds(), len(failures))
	if sent == loadMost {
		t.Errorf("it was not over after %d requests", sent)
	}
	return failures
}

// wantNone wants no request to have failed.
func wantNone(t *testing.T, failures []error) {
	t.Helper()
	for i, err := range failures {
		if i == 10 {
			t.Errorf("and %d more", len(failures)-i)
			break
		}
		t.Error(err)
	}
}

// converts reads a policy in the version in which it is not stored.
func (s *Site) converts(namespace string) func(context.Context) error {
	path := harness.PathOf(harness.OperatorPoliciesIn(harness.Earlier), cluster.PolicyNamespace, namespace, "")
	return func(ctx context.Context) error {
		got, err := s.Clients[cluster.Admin].Send(ctx, harness.Request{Method: http.MethodGet, Path: path})
		if err == nil && !got.OK() {
			err = fmt.Errorf("read %s in %s: got %s", namespace, harness.Earlier, got)
		}
		return err
	}
}

// rotateAndRestart replaces the CA, and the pods, again and again, both at the same time.
func (s *Site) rotateAndRestart(t *testing.T) {
	times := 2
	if *harness.Long {
		times = 10
	}
	var restarting sync.WaitGroup
	defer restarting.Wait()
	restarting.Go(func() {
		for range times {
			s.restart(t)
		}
	})
	signers := []string{s.signer(t)}
	for i := range times {
		s.Admin(t, "annotate", "secret", "-n", cluster.OpgateNamespace, caSecret, "--overwrite",
			fmt.Sprintf("opgate.io/rotate-ca=%d", i))
		signers = append(signers, s.wantAnotherSigner(t, signers...))
	}
}

// restart replaces all pods, one after the other, and waits until it is done. kubectl refuses a second restart within a
// second of the first, and pods that start quickly are replaced in less.
func (s *Site) restart(t *testing.T) {
	deployment := []string{"deployment", "-n", cluster.OpgateNamespace, "opgate"}
	harness.Eventually(t, "the Deployment is restarted", func(ctx context.Context) error {
		return s.tryKubectl(ctx, append([]string{"rollout", "restart"}, deployment...)...)
	})
	if err := s.tryKubectl(t.Context(), append([]string{"rollout", "status"},
		deployment...)...); err != nil {
		t.Error(err)
	}
}

// tryKubectl runs kubectl as a cluster admin.
func (s *Site) tryKubectl(ctx context.Context, args ...string) error {
	result, err := s.Kubectl(ctx, cluster.Admin, "", args...)
	if err == nil && result.ExitCode != 0 {
		err = fmt.Errorf("kubectl %s: %s%s", strings.Join(args, " "), result.Stdout, result.Stderr)
	}
	return err
}

// signer is the certificate of the CA that signs, "" while there is none.
func (s *Site) signer(t *testing.T) string {
	return s.Admin(t, "get", "secret", "-n", cluster.OpgateNamespace, caSecret, "--ignore-not-found", "-o",
		`jsonpath={.data.tls\.crt}`)
}

// wantAnotherSigner wants a CA to sign that has not signed before, and returns it.
func (s *Site) wantAnotherSigner(t *testing.T, before ...string) (now string) {
	t.Helper()
	harness.Eventually(t, "another CA signs", func(context.Context) error {
		if now = s.signer(t); now == "" || slices.Contains(before, now) {
			return fmt.Errorf("of %d that have signed, one does", len(before))
		}
		return nil
	})
	return now
}
