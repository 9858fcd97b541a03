package speed

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// lasts returns how long a wait of d lasts by the clock.
func lasts(m *meter, d time.Duration) time.Duration {
	began := time.Now()
	ctx, cancel := m.withTimeout(context.Background(), d)
	defer cancel()
	<-ctx.Done()
	return time.Since(began)
}

// TestDeadline: a deadline is as late as the machine is slow, which may change while a test waits.
func TestDeadline(t *testing.T) {
	for name, c := range map[string]struct {
		samples    []float64 // what each tick finds; the last stays
		d          time.Duration
		least, max time.Duration
	}{
		"usual":           {samples: []float64{1}, d: 3 * time.Minute, least: 3 * time.Minute, max: 3 * time.Minute},
		"slow":            {samples: []float64{4}, d: time.Minute, least: 4 * time.Minute, max: 4*time.Minute + tick},
		"shorter than it": {samples: []float64{3}, d: time.Second, least: 3 * time.Second, max: 4 * time.Second},
		"busy for a while": {samples: []float64{10, 10, 10, 10, 10, 10, 1}, d: time.Minute, least: 85 * time.Second,
			max: 90 * time.Second},
		"over at once": {samples: []float64{1}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &meter{measure: func() float64 {
					now := c.samples[0]
					c.samples = c.samples[min(1, len(c.samples)-1):]
					return now
				}}
				if got := lasts(m, c.d); got < c.least || got > c.max {
					t.Errorf("%s last %s, want %s to %s", c.d, got, c.least, c.max)
				}
			})
		})
	}
}

// TestStoppedProcess: what a step lasts beyond what it was to last does not count, as when the process was stopped
// while the machine was measured.
func TestStoppedProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &meter{}
		m.measure = func() float64 {
			if m.at.IsZero() {
				return 1
			}
			time.Sleep(10 * time.Minute)
			return 1
		}
		m.slowness()
		if got, want := lasts(m, time.Minute), 2*time.Hour; got < want {
			t.Errorf("a minute lasts %s, want at least %s: the process was stopped for 10 minutes 12 times", got, want)
		}
	})
}

// TestSharedMeasurement: waits at the same time share what is measured, and waits that end ended measure nothing.
func TestSharedMeasurement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		samples := 0
		m := &meter{measure: func() float64 { samples++; return 1 }}
		for range 100 {
			ctx, cancel := m.withTimeout(t.Context(), Wait)
			defer cancel()
			ended, end := m.withTimeout(t.Context(), Wait)
			end()
			<-ended.Done()
			if err := context.Cause(ended); !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			defer func() {
				if err := context.Cause(ctx); !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
			}()
		}
		time.Sleep(tick / 2)
		if samples != 0 {
			t.Errorf("%d samples before the first tick", samples)
		}
		time.Sleep(Wait)
		if most := int(Wait/tick) + 1; samples > most {
			t.Errorf("100 waits measured %d times in %s, want %d at most", samples, Wait, most)
		}
	})
}

// TestPoll: the error states that the time is up, and how long that was; the condition's own errors stay.
func TestPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := machine
		t.Cleanup(func() { machine = before })
		machine = &meter{measure: func() float64 { return 2 }}
		never := func(context.Context) (bool, error) { return false, nil }
		err := Poll(t.Context(), time.Second, time.Minute, never)
		if !errors.Is(err, context.DeadlineExceeded) || !wait.Interrupted(err) || !strings.Contains(err.Error(), "2m0s") {
			t.Error(err)
		}
		failing := func(context.Context) (bool, error) { return false, io.EOF }
		if err := Poll(t.Context(), time.Second, time.Minute, failing); !errors.Is(err, io.EOF) {
			t.Error(err)
		}
		for range 3 {
			over := After(time.Minute)
			time.Sleep(time.Minute)
			select {
			case <-over:
				t.Fatal("it is over too early")
			default:
			}
			<-over
		}
	})
}

// TestTransport: an answer that does not come, or does not end, fails when the time is up.
func TestTransport(t *testing.T) {
	for _, path := range []string{"/silent", "/endless", "/"} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/silent" {
				<-r.Context().Done()
			}
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			if r.URL.Path == "/endless" {
				<-r.Context().Done()
			}
		}))
		t.Cleanup(server.Close)
		d := 100 * time.Millisecond
		if path == "/" {
			d = Wait
		}
		client := &http.Client{Transport: Transport(http.DefaultTransport, d)}
		response, err := client.Get(server.URL + path)
		if err == nil {
			_, err = io.ReadAll(response.Body)
			_ = response.Body.Close()
		}
		if failed := err != nil; failed != (path != "/") || failed && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestMeter: the machine itself is measured with little work.
func TestMeter(t *testing.T) {
	before := cpuTime()
	slowness := machine.measure()
	if slowness < 1 || slowness > most {
		t.Errorf("this machine is %.1f times slower than usual", slowness)
	}
	t.Logf("this machine is %.2f times slower than usual now, which took %s of a processor", slowness, cpuTime()-before)
}
