package stream

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// bound is the bound of the watches of these tests.
const bound = 10 * time.Second

// quiet is an API server in which nothing changes: a watch is sent a bookmark two seconds before its timeout, and ends
// then. It is a transport.
type quiet struct {
	requests atomic.Int64
	// stalled requests are answered, and sent nothing. late is the delay of initial events.
	stalled atomic.Bool
	late    time.Duration
	// failing is the status that requests are answered with; 0 for none, and a negative one to refuse connections.
	failing atomic.Int64
	// resumed is closed when stalled requests are sent what was withheld.
	resumed chan struct{}
}

const bookmark = `{"type":"BOOKMARK","object":{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"resourceVersion":"%d"%s}}}` + "\n"

// RoundTrip answers a request.
func (q *quiet) RoundTrip(r *http.Request) (*http.Response, error) {
	n := q.requests.Add(1)
	switch code := int(q.failing.Load()); {
	case code < 0:
		return nil, fmt.Errorf("dial: %w", syscall.ECONNREFUSED)
	case code > 0:
		return &http.Response{StatusCode: code, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
	}
	query := r.URL.Query()
	seconds, err := strconv.Atoi(query.Get("timeoutSeconds"))
	if err != nil {
		return nil, err
	}
	stalled := q.stalled.Load()
	body, w := io.Pipe()
	go func() {
		timeout := time.After(time.Duration(seconds) * time.Second)
		pause := func(d time.Duration) {
			select {
			case <-time.After(d):
			case <-r.Context().Done():
				w.CloseWithError(r.Context().Err())
			}
		}
		if query.Get("sendInitialEvents") == "true" {
			pause(q.late)
			fmt.Fprintf(w, bookmark, n, `,"annotations":{"k8s.io/initial-events-end":"true"}`)
		} else {
			pause(time.Duration(seconds-2) * time.Second)
			if stalled {
				select {
				case <-q.resumed:
				case <-r.Context().Done():
				}
			}
			fmt.Fprintf(w, bookmark, n, "")
		}
		select {
		case <-timeout:
		case <-r.Context().Done():
			w.CloseWithError(r.Context().Err())
			return
		}
		w.Close() //nolint:errcheck // never fails
	}()
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		Body: body, Request: r}, nil
}

// followed watches a quiet API server in a bubble.
func followed(t *testing.T, q *quiet, test func(t *testing.T, p *Progress)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		q.resumed = make(chan struct{})
		client, err := NewForConfig(&rest.Config{Host: "http://api-server", Transport: q, QPS: -1})
		if err != nil {
			t.Fatal(err)
		}
		p := NewProgress(bound)
		go Reflect(t.Context(), "widgets", client.Selecting(widgets, "", "", decodeWidget, p),
			&unstructured.Unstructured{}, cache.NewStore(cache.MetaNamespaceKeyFunc), p.LongestPause(), func(error) {})
		for p.Confirmed().IsZero() {
			time.Sleep(time.Second)
		}
		test(t, p)
	})
}

// staleWithin returns after how many seconds a watch is stale, or not any more.
func staleWithin(t *testing.T, p *Progress, want bool, limit time.Duration) time.Duration {
	t.Helper()
	since := time.Now()
	for ; time.Since(since) <= limit; time.Sleep(100 * time.Millisecond) {
		if synctest.Wait(); p.Stale() == want {
			return time.Since(since)
		}
	}
	t.Fatalf("after %s stale is not %t", limit, want)
	return 0
}

// TestG1QuietIsNotStale: a watch of which nothing changes for a day is never stale, and is opened again every five
// seconds.
func TestG1QuietIsNotStale(t *testing.T) {
	q := &quiet{}
	followed(t, q, func(t *testing.T, p *Progress) {
		for range 24 * 60 * 60 {
			time.Sleep(time.Second)
			if p.Stale() {
				t.Fatalf("stale, after progress at %s", p.Confirmed())
			}
		}
		if n := q.requests.Load(); n < 24*720 || n > 24*720+10 {
			t.Errorf("%d requests in a day, want one in 5 seconds", n)
		}
	})
}

// TestG1StalledIsStale: a watch that is sent nothing is stale within the bound, is opened again and again, and is
// current again at once when it is sent what was withheld.
func TestG1StalledIsStale(t *testing.T) {
	q := &quiet{}
	followed(t, q, func(t *testing.T, p *Progress) {
		time.Sleep(time.Minute)
		q.stalled.Store(true)
		before := q.requests.Load()
		if took := staleWithin(t, p, true, 2*bound); took > bound+6*time.Second {
			t.Errorf("stale after %s", took) // what was opened before is not stalled
		}
		time.Sleep(time.Minute)
		if n := q.requests.Load() - before; n < 8 || n > 20 {
			t.Errorf("%d requests in a minute", n)
		}
		q.stalled.Store(false)
		close(q.resumed)
		if took := staleWithin(t, p, false, bound); took > shortest {
			t.Errorf("current again after %s", took)
		}
	})
}

// TestG1Outage: a watch is current soon after an API server answers again, however long it did not.
func TestG1Outage(t *testing.T) {
	for _, code := range []int64{-1, http.StatusForbidden, http.StatusTooManyRequests, http.StatusInternalServerError,
		http.StatusServiceUnavailable} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			q := &quiet{}
			followed(t, q, func(t *testing.T, p *Progress) {
				before := q.requests.Load()
				q.failing.Store(code)
				time.Sleep(10 * time.Minute)
				if !p.Stale() {
					t.Error("not stale")
				}
				if n := q.requests.Load() - before; n > 10*60*2 {
					t.Errorf("%d requests in ten minutes, want at most two in a second", n)
				}
				q.failing.Store(0)
				if took := staleWithin(t, p, false, bound); took > 2*p.LongestPause()+shortest {
					t.Errorf("current again after %s", took)
				}
			})
		})
	}
}

// TestG1LateEnd: a watch that ends late once, by less than the rest of the bound, is not stale.
func TestG1LateEnd(t *testing.T) {
	q := &quiet{}
	followed(t, q, func(t *testing.T, p *Progress) {
		for range 100 {
			time.Sleep(17 * time.Second)
			q.stalled.Store(true)
			opened := q.requests.Load()
			for q.requests.Load() == opened {
				time.Sleep(100 * time.Millisecond)
			}
			q.stalled.Store(false) // the next but one is in time again
			for range 150 {
				if time.Sleep(100 * time.Millisecond); p.Stale() {
					t.Fatalf("stale, %s after progress", time.Since(p.Confirmed()))
				}
			}
		}
	})
}

// TestG1LongList: a first list that takes longer than the bound is read to its end.
func TestG1LongList(t *testing.T) {
	followed(t, &quiet{late: 2 * bound}, func(t *testing.T, p *Progress) {
		if p.Stale() || time.Since(p.Confirmed()) > time.Second {
			t.Errorf("confirmed at %s, now %s", p.Confirmed(), time.Now())
		}
	})
}

// TestG1Paused: what a process reads after it was stopped was sent before, and shows nothing of the time since.
func TestG1Paused(t *testing.T) {
	p := NewProgress(bound)
	opened := time.Now().Add(-time.Minute)
	p.confirm(opened.Add(bound))
	if !p.Stale() {
		t.Error("a bookmark of a minute ago is progress")
	}
	p.Forget()
	if p.Stale() {
		t.Error("stale, although it has shown nothing yet")
	}
}
