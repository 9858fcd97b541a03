package inflight

import (
	"bufio"
	"bytes"
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
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/opgate/opgate/internal/memnet"
)

// serve answers with how many bytes were read, through a budget.
func serve(t *testing.T) (*Budget, *memnet.Listener) {
	t.Helper()
	budget, network := NewBudget(prometheus.NewRegistry()), memnet.Listen()
	server := &httptest.Server{Listener: network,
		Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body := budget.For(r, Caller{})
			defer body.Close()
			err := body.Read(r.Context(), w, r)
			switch {
			case errors.Is(err, ErrBusy):
				RejectBusy(w)
			case err != nil:
				http.Error(w, err.Error(), http.StatusBadRequest)
			default:
				fmt.Fprint(w, len(body.JSON))
			}
		})}}
	server.Start()
	t.Cleanup(server.Close)
	return budget, network
}

// from connects from a host.
func from(t *testing.T, host string, to *memnet.Listener) net.Conn {
	t.Helper()
	c, err := to.Dial(t.Context(), host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
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

// TestA3SilentClients has clients announce bodies of megabytes and send nothing of them: they hold no more than the
// first part of each. Those that send the first part and stop get two thirds of the budget together, and others are
// served meanwhile.
func TestA3SilentClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget, network := serve(t)
		const silent, begun = 20, MaxBody / 4
		for range silent {
			post(t, from(t, "10.0.0.2", network), MaxBody, nil)
		}
		synctest.Wait()
		if used := budget.all.bodies.used(); used != silent*firstPart {
			t.Errorf("announcements hold %d bytes, want their first parts, %d", used, silent*firstPart)
		}
		var rejected atomic.Int64
		for range silent {
			c := from(t, "10.0.0.3", network)
			post(t, c, begun, bytes.Repeat([]byte(" "), firstPart))
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
			synctest.Wait()
		}
		if used := budget.all.bodies.used(); used < 3*begun || used > bodiesCapacity*3/4 {
			t.Errorf("bodies that were begun hold %d bytes", used)
		}
		for range 3 {
			c := from(t, "10.0.0.1", network)
			began := time.Now()
			post(t, c, 30<<10, bytes.Repeat([]byte(" "), 30<<10))
			if code, text := answer(t, c); code != http.StatusOK || text != fmt.Sprint(30<<10) {
				t.Errorf("another client is answered %d %s", code, text)
			}
			if took := time.Since(began); took != 0 {
				t.Errorf("another client waits %s", took)
			}
		}
		time.Sleep(waitTimeout)
		synctest.Wait()
		if rejected.Load() == 0 {
			t.Error("no client that waits is rejected")
		}
		time.Sleep(firstTimeout)
		synctest.Wait()
		if used := budget.all.bodies.used(); used != 0 {
			t.Errorf("%d bytes are still reserved when all time is up", used)
		}
	})
}

// TestBuffersAreNotShared: each body keeps its text until it is closed, while others are read into buffers that were
// used before.
func TestBuffersAreNotShared(t *testing.T) {
	budget := NewBudget(prometheus.NewRegistry())
	var wait sync.WaitGroup
	for i := range 8 {
		wait.Go(func() {
			text := bytes.Repeat([]byte{'a' + byte(i)}, firstPart/2<<(i%4))
			for range 200 {
				r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(text))
				body := budget.For(r, Caller{})
				if err := body.Read(r.Context(), httptest.NewRecorder(), r); err != nil {
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
			body := budget.For(r, Caller{})
			if err := body.Read(r.Context(), httptest.NewRecorder(), r); err != nil || !bytes.Equal(body.JSON, text) {
				t.Errorf("%d bytes, announced %t: %d were read: %v", size, announced, len(body.JSON), err)
			}
			body.Close()
		}
	}
	for name, r := range map[string]*http.Request{
		"announced": httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(make([]byte, MaxBody+1))),
		"not announced": httptest.NewRequest(http.MethodPost, "/",
			io.MultiReader(bytes.NewReader(make([]byte, MaxBody+1)))),
		"more than is announced": {Method: http.MethodPost, ContentLength: 100,
			Body: io.NopCloser(strings.NewReader("{}")), RemoteAddr: "a"},
		"no UTF-8": httptest.NewRequest(http.MethodPost, "/", strings.NewReader("\"\xff\"")),
		"millions of values": httptest.NewRequest(http.MethodPost, "/",
			strings.NewReader("["+strings.Repeat("{},", 2_000_000)+"{}]")),
	} {
		body := budget.For(r, Caller{})
		err := body.Read(r.Context(), httptest.NewRecorder(), r)
		if err == nil || errors.Is(err, ErrBusy) {
			t.Errorf("%s: read, with error %v", name, err)
		}
		if tooLarge := strings.HasSuffix(name, "announced") &&
			!strings.HasPrefix(name, "more"); tooLarge != errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: the error is %v", name, err)
		}
		body.Close()
	}
	if budget.all.bodies.used()+budget.all.work.used() != 0 {
		t.Errorf("%d and %d bytes are still reserved", budget.all.bodies.used(), budget.all.work.used())
	}
}

// TestListener closes what one address opens beyond its share, and serves another.
func TestListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memnet.Listen()
		l := &listener{network, newPool(6)}
		accepted := make(chan net.Conn, 100)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				accepted <- c
			}
		}()
		var last net.Conn
		for range 5 {
			last = from(t, "10.0.0.2", network)
		}
		if _, err := last.Read(make([]byte, 1)); err == nil {
			t.Error("the last connection of an address that has its share is not closed")
		}
		if len(accepted) != 4 {
			t.Errorf("%d connections of one address are accepted, want 4 of 6", len(accepted))
		}
		from(t, "10.0.0.3", network)
		for range 5 {
			c := <-accepted
			_ = c.Close()
			_ = c.Close() // counts once
		}
		if used := l.open.used(); used != 0 {
			t.Errorf("%d connections count as open, none is", used)
		}
		_ = network.Close()
	})
}
