package inflight

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// testTimeout bounds, what takes milliseconds on a machine that has nothing else to do.
const testTimeout = time.Minute

// serve answers with how many bytes were read, through a budget.
func serve(t *testing.T) (*Budget, string) {
	t.Helper()
	budget := NewBudget(prometheus.NewRegistry())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := budget.For(r)
		defer body.Close()
		err := body.Read(w, r)
		switch {
		case errors.Is(err, ErrBusy):
			budget.RejectBusy(w)
		case err != nil:
			http.Error(w, err.Error(), http.StatusBadRequest)
		default:
			fmt.Fprint(w, len(body.JSON))
		}
	}))
	t.Cleanup(server.Close)
	return budget, strings.TrimPrefix(server.URL, "http://")
}

// from connects from an address of this machine.
func from(t *testing.T, last byte, to string) net.Conn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, last)}}
	c, err := dialer.DialContext(t.Context(), "tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(testTimeout)); err != nil {
		t.Fatal(err)
	}
	return c
}

// post sends a body that has a length of its own, as much of it as there is.
func post(t *testing.T, c net.Conn, length int, body []byte) {
	t.Helper()
	head := fmt.Sprintf("POST / HTTP/1.1\r\nHost: gate\r\nContent-Length: %d\r\n\r\n", length)
	if _, err := c.Write(append([]byte(head), body...)); err != nil {
		t.Fatal(err)
	}
}

func answer(t *testing.T, c net.Conn) (int, string) {
	t.Helper()
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// TestA3SilentClients has clients announce bodies of megabytes and send nothing of them: they hold no more than the first part
// of each. Those that send the first part and stop get two thirds of the budget together, and others are served meanwhile.
func TestA3SilentClients(t *testing.T) {
	budget, address := serve(t)
	until := func(what string, done func() bool) {
		t.Helper()
		for deadline := time.Now().Add(testTimeout); !done(); {
			if time.Now().After(deadline) {
				t.Fatalf("%s: %d bytes are reserved", what, budget.bodies.used())
			}
			time.Sleep(time.Millisecond)
		}
	}
	const silent = 20
	for range silent {
		post(t, from(t, 2, address), MaxBody, nil)
	}
	until("every announcement holds its first part", func() bool { return budget.bodies.used() == silent*firstPart })
	var rejected atomic.Int64
	for range silent {
		c := from(t, 3, address)
		post(t, c, MaxBody, bytes.Repeat([]byte(" "), firstPart))
		go func() {
			response, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				return
			}
			_ = response.Body.Close()
			if response.StatusCode == http.StatusTooManyRequests {
				rejected.Add(1)
			}
		}()
	}
	until("bodies that were begun are reserved", func() bool { return budget.bodies.used() > MaxBody })
	for range 3 {
		c := from(t, 1, address)
		post(t, c, 30<<10, bytes.Repeat([]byte(" "), 30<<10))
		if code, text := answer(t, c); code != http.StatusOK || text != fmt.Sprint(30<<10) {
			t.Errorf("another client is answered %d %s", code, text)
		}
	}
	until("clients that wait are rejected", func() bool { return rejected.Load() > 0 })
	until("all that was reserved is given back", func() bool { return budget.bodies.used() == 0 })
}

// TestBuffersAreNotShared: each body keeps its text until it is closed, while others are read into buffers that were used before.
func TestBuffersAreNotShared(t *testing.T) {
	budget := NewBudget(prometheus.NewRegistry())
	var wait sync.WaitGroup
	for i := range 8 {
		wait.Go(func() {
			text := bytes.Repeat([]byte{'a' + byte(i)}, firstPart/2<<(i%4))
			for range 200 {
				r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(text))
				body := budget.For(r)
				if err := body.Read(httptest.NewRecorder(), r); err != nil {
					t.Error(err)
				}
				runtime.Gosched()
				if !bytes.Equal(body.JSON, text) {
					t.Errorf("the body of %d times %q has changed", len(text), text[0])
				}
				body.Close()
			}
		})
	}
	wait.Wait()
}

// TestRead reads bodies of all sizes, announced and not.
func TestRead(t *testing.T) {
	budget := NewBudget(prometheus.NewRegistry())
	for _, size := range []int{0, 1, firstPart - 1, firstPart, firstPart + 1, 3*firstPart + 7, MaxBody - 1, MaxBody} {
		for _, announced := range []bool{true, false} {
			text := bytes.Repeat([]byte(" "), size)
			r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(text))
			if !announced {
				r.ContentLength = -1
			}
			body := budget.For(r)
			if err := body.Read(httptest.NewRecorder(), r); err != nil || !bytes.Equal(body.JSON, text) {
				t.Errorf("%d bytes, announced %t: %d were read: %v", size, announced, len(body.JSON), err)
			}
			body.Close()
		}
	}
	for name, r := range map[string]*http.Request{
		"announced":              httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(make([]byte, MaxBody+1))),
		"not announced":          httptest.NewRequest(http.MethodPost, "/", io.MultiReader(bytes.NewReader(make([]byte, MaxBody+1)))),
		"more than is announced": {Method: http.MethodPost, ContentLength: 100, Body: io.NopCloser(strings.NewReader("{}")), RemoteAddr: "a"},
		"no UTF-8":               httptest.NewRequest(http.MethodPost, "/", strings.NewReader("\"\xff\"")),
		"millions of values":     httptest.NewRequest(http.MethodPost, "/", strings.NewReader("["+strings.Repeat("{},", 2_000_000)+"{}]")),
	} {
		body := budget.For(r)
		err := body.Read(httptest.NewRecorder(), r)
		if err == nil || errors.Is(err, ErrBusy) {
			t.Errorf("%s: read, with error %v", name, err)
		}
		if tooLarge := strings.HasSuffix(name, "announced") && !strings.HasPrefix(name, "more"); tooLarge != errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: the error is %v", name, err)
		}
		body.Close()
	}
	if budget.bodies.used()+budget.work.used() != 0 {
		t.Errorf("%d and %d bytes are still reserved", budget.bodies.used(), budget.work.used())
	}
}

// TestListener closes what one address opens beyond its share, and serves another.
func TestListener(t *testing.T) {
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &listener{inner, newPool(6)}
	accepted := make(chan net.Conn, 100)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for ctx.Err() == nil {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	var last net.Conn
	for range 5 {
		last = from(t, 2, inner.Addr().String())
	}
	if _, err := last.Read(make([]byte, 1)); err == nil {
		t.Error("the last connection of an address that has its share is not closed")
	}
	if len(accepted) != 4 {
		t.Errorf("%d connections of one address are accepted, want 4 of 6", len(accepted))
	}
	from(t, 3, inner.Addr().String())
	for range 5 {
		c := <-accepted
		_ = c.Close()
		_ = c.Close() // counts once
	}
	if used := l.open.used(); used != 0 {
		t.Errorf("%d connections count as open, none is", used)
	}
	_ = inner.Close()
}
