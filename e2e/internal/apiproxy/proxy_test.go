package apiproxy

import (
	"bufio"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/opgate/opgate/e2e/internal/speed"
)

const (
	policies = "/apis/policy.open-cluster-management.io/v1beta2/operatorpolicies"
	plans    = "/apis/operators.coreos.com/v1alpha1/namespaces/shop/installplans"
	secret   = "/api/v1/namespaces/shop/secrets/one"
)

// disturbed is a client of a server behind a proxy. The server answers watches with what is sent to its channels.
type disturbed struct {
	*Proxy
	client *http.Client
	url    string
	events map[string]chan string
}

func start(t *testing.T) *disturbed {
	t.Helper()
	d := &disturbed{events: map[string]chan string{}}
	for _, path := range []string{policies, plans, secret} {
		d.events[path] = make(chan string)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(d.answer))
	server.EnableHTTP2 = true
	server.StartTLS()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	user := &rest.Config{Host: server.URL, BearerToken: "token", TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
	var err error
	if d.Proxy, err = Start(t.Context(), "127.0.0.1:0", user); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
		server.CloseClientConnections()
		server.Close()
	})
	config := d.Config(user)
	d.url = config.Host
	if d.client, err = rest.HTTPClientFor(config); err != nil {
		t.Fatal(err)
	}
	return d
}

// answer is that of the API server.
func (d *disturbed) answer(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer token" || r.ProtoMajor != 2 {
		http.Error(w, "the token or HTTP/2 is lost", http.StatusUnauthorized)
		return
	}
	if r.URL.Query().Get("watch") == "" {
		fmt.Fprintln(w, "object")
		return
	}
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	for {
		select {
		case <-r.Context().Done():
			return
		case event := <-d.events[r.URL.Path]:
			fmt.Fprintln(w, event)
			w.(http.Flusher).Flush()
		}
	}
}

// get returns the answer to a request that takes at most a while.
func (d *disturbed) get(path string, most time.Duration) (code int, body string, err error) {
	ctx, cancel := speed.WithTimeout(context.Background(), most)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url+path, nil)
	if err != nil {
		return 0, "", err
	}
	response, err := d.client.Do(request)
	if err != nil {
		return 0, "", errors.Join(err, context.Cause(ctx))
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

// watch opens a watch, and returns its lines until it ends.
func (d *disturbed) watch(t *testing.T, path string) <-chan string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.url+path+"?watch=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := d.client.Do(request) //nolint:bodyclose // the caller closes it
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != http.StatusOK {
		t.Fatalf("watch %s: %s", path, response.Status)
	}
	lines := make(chan string, 10)
	go func() {
		defer close(lines)
		defer func() { _ = response.Body.Close() }()
		for scanner := bufio.NewScanner(response.Body); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	return lines
}

const (
	limit = speed.Wait             // until what has to happen
	never = 300 * time.Millisecond // for what must not happen
)

// wantObject wants that requests are answered.
func (d *disturbed) wantObject(t *testing.T, path string) {
	t.Helper()
	if code, body, err := d.get(path, limit); err != nil || code != http.StatusOK || body != "object\n" {
		t.Errorf("GET %s: %d %q %v", path, code, body, err)
	}
}

func wantLine(t *testing.T, lines <-chan string, want string) {
	t.Helper()
	select {
	case line, open := <-lines:
		if line != want || !open {
			t.Errorf("the watch delivers %q, open %t, want %q", line, open, want)
		}
	case <-speed.After(limit):
		t.Errorf("the watch does not deliver %q", want)
	}
}

func wantNone(t *testing.T, lines <-chan string) {
	t.Helper()
	select {
	case line, open := <-lines:
		t.Errorf("the watch delivers %q, open %t", line, open)
	case <-time.After(never):
	}
}

func TestForwards(t *testing.T) {
	d := start(t)
	d.wantObject(t, secret)
	lines := d.watch(t, plans)
	for _, event := range []string{"one", "two"} {
		d.events[plans] <- event
		wantLine(t, lines, event)
	}
}

func TestStall(t *testing.T) {
	d := start(t)
	stalled, other := d.watch(t, policies), d.watch(t, plans)
	d.Set(Fault{Stall: []string{"operatorpolicies"}})
	d.events[policies] <- "edited"
	wantNone(t, stalled)
	d.events[plans] <- "approved"
	wantLine(t, other, "approved")
	d.wantObject(t, policies)

	later := d.watch(t, policies)
	wantNone(t, later)
	d.Set(Fault{Stall: []string{All}})
	d.events[plans] <- "complete"
	wantNone(t, other)
	d.Set(Fault{})
	wantLine(t, stalled, "edited")
	wantLine(t, other, "complete")
}

func TestReset(t *testing.T) {
	d := start(t)
	lines := d.watch(t, plans)
	d.Reset()
	select {
	case line, open := <-lines:
		if open {
			t.Errorf("the watch delivers %q", line)
		}
	case <-speed.After(limit):
		t.Error("the watch is open")
	}
	d.wantObject(t, secret)
}

func TestRefuse(t *testing.T) {
	d := start(t)
	d.Set(Fault{Refuse: true})
	if code, _, err := d.get(secret, limit); err == nil {
		t.Errorf("a new connection is served: %d", code)
	}
	d.Set(Fault{RefuseWatches: []string{"installplans"}})
	d.wantObject(t, plans)
	if code, _, err := d.get(plans+"?watch=1", limit); err != nil || code != http.StatusServiceUnavailable {
		t.Errorf("a new watch is answered %d %v", code, err)
	}
	_ = d.watch(t, policies)
	d.Set(Fault{})
	_ = d.watch(t, plans)
}

func TestBlackHole(t *testing.T) {
	d := start(t)
	lines := d.watch(t, plans)
	d.Set(Fault{BlackHole: true})
	d.events[plans] <- "one"
	wantNone(t, lines)
	if code, _, err := d.get(secret, never); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a request is answered with %d, %v", code, err)
	}
	d.Set(Fault{})
	wantLine(t, lines, "one")
	d.wantObject(t, secret)
}

func TestDelay(t *testing.T) {
	d := start(t)
	d.Set(Fault{Delay: limit})
	if code, _, err := d.get(secret, never); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a request is answered with %d, %v", code, err)
	}
	d.Set(Fault{Delay: time.Millisecond})
	d.wantObject(t, secret)
}
