package inflight

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// reviewIn is a review of an object in a namespace, of some size in bytes.
func reviewIn(namespace string, size int) string {
	return `{"request":{"uid":"1","namespace":"` + namespace + `","object":"` + strings.Repeat("a", size) + `"}}`
}

// read reads a review from an address, without waiting for memory unless the context lasts.
func read(ctx context.Context, b *Budget, c Caller, address, text string) (*Body, error) {
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader(text))
	r.RemoteAddr = address + ":1"
	body := b.For(r, c)
	return body, body.Read(r.Context(), httptest.NewRecorder(), r)
}

// fill reads reviews until there is no memory for one, and returns how many were read.
func fill(t *testing.T, b *Budget, c Caller, address, namespace string) (n int) {
	t.Helper()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for {
		body, err := read(gone, b, c, address, reviewIn(namespace, 100<<10))
		if err != nil {
			body.Close()
			return n
		}
		n++
	}
}

// TestP4Shares has one namespace take all the memory that it gets, by reviews from the API server's address. Reviews of
// other namespaces are read meanwhile, and so are steps. A client with a token that it has seen counts as one, whatever
// namespaces it names (threat O44).
func TestP4Shares(t *testing.T) {
	const server, other = "10.0.0.1", "10.0.0.2"
	known := Caller{Authenticated: true}
	wantRead := func(b *Budget, c Caller, address, namespace string) {
		t.Helper()
		for i := range 3 {
			if body, err := read(t.Context(), b, c, address, reviewIn(namespace, 30<<10)); err != nil {
				t.Errorf("review %d of %s: %v", i, namespace, err)
			} else {
				defer body.Close()
			}
		}
	}
	t.Run("a namespace", func(t *testing.T) {
		b := NewBudget(prometheus.NewRegistry())
		if n := fill(t, b, known, server, "tenant"); n < 50 {
			t.Errorf("a namespace gets memory for %d reviews only", n)
		}
		wantRead(b, known, server, "shop")
		wantRead(b, known, server, "")
		wantRead(b, Caller{Authenticated: true, Step: true}, server, "tenant")
	})
	t.Run("a namespace, of steps", func(t *testing.T) {
		b := NewBudget(prometheus.NewRegistry())
		fill(t, b, Caller{Authenticated: true, Step: true}, server, "tenant")
		wantRead(b, Caller{Authenticated: true, Step: true}, server, "shop")
		wantRead(b, known, server, "tenant")
	})
	t.Run("a seen token", func(t *testing.T) {
		b := NewBudget(prometheus.NewRegistry())
		for i := range 20 {
			fill(t, b, known, other, fmt.Sprintf("forged-%d", i))
		}
		wantRead(b, known, server, "shop")
	})
	t.Run("a client at the API server's address", func(t *testing.T) {
		b := NewBudget(prometheus.NewRegistry())
		fill(t, b, Caller{}, server, "shop")
		wantRead(b, known, server, "shop")
	})
}

// TestP4WaitsEnd: an authenticated caller waits for memory as long as its context lasts, is served when some is
// released before, and knows the UID of what was not read.
func TestP4WaitsEnd(t *testing.T) {
	known := Caller{Authenticated: true}
	for name, released := range map[string]time.Duration{"nothing is released": 0,
		"released after three seconds": 3 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := NewBudget(prometheus.NewRegistry())
				// It takes most of what one namespace gets.
				first, err := read(t.Context(), b, known, "10.0.0.1", reviewIn("shop", 6<<20))
				if err != nil {
					t.Fatal(err)
				}
				if released > 0 {
					time.AfterFunc(released, first.Close)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
				defer cancel()
				begun := time.Now()
				second, err := read(ctx, b, known, "10.0.0.1", reviewIn("shop", 3<<20))
				want := error(nil)
				if released == 0 {
					released, want = 4*time.Second, ErrBusy
				}
				if took := time.Since(begun); took != released || !errors.Is(err, want) {
					t.Errorf("%v after %s, want %v after %s", err, took, want, released)
				}
				if second.Head != (Head{UID: "1", Namespace: "shop"}) {
					t.Errorf("the head is %+v", second.Head)
				}
				first.Close()
				second.Close()
				if used := b.all.used(); used != 0 {
					t.Errorf("%d bytes are still reserved", used)
				}
			})
		})
	}
}

// TestN1Head: the head of what is too large is read, and the rest of it, so that the client gets its answer.
func TestN1Head(t *testing.T) {
	b := NewBudget(prometheus.NewRegistry())
	for _, announced := range []bool{true, false} {
		rest := strings.NewReader(reviewIn("shop", MaxBody))
		r := httptest.NewRequest(http.MethodPost, "/", io.NopCloser(rest))
		if announced {
			r.ContentLength = rest.Size()
		}
		body := b.For(r, Caller{Authenticated: true})
		if err := body.Read(r.Context(), httptest.NewRecorder(), r); !errors.Is(err, ErrTooLarge) {
			t.Errorf("announced %t: %v", announced, err)
		}
		if body.Head.UID != "1" || rest.Len() > 0 {
			t.Errorf("announced %t: the head is %+v, and %d bytes are not read", announced, body.Head, rest.Len())
		}
		body.Close()
	}
	if used := b.all.used(); used != 0 {
		t.Errorf("%d bytes are still reserved", used)
	}
}
