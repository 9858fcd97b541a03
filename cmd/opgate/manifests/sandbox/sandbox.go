// Package sandbox runs code of libraries that must not load anything and may not end.
package sandbox

import (
	"fmt"
	"net/http"
	"os"
	"runtime/metrics"
	"time"
)

// Limits are what a function may take.
type Limits struct {
	// Bytes is the growth of the heap, garbage included.
	Bytes uint64
	Time  time.Duration
}

// offline is an HTTP transport without a network.
type offline struct{}

func (offline) RoundTrip(r *http.Request) (*http.Response, error) {
	return nil, fmt.Errorf("%s is not loaded: kustomizations are built without network", r.URL.Redacted())
}

// Run runs a function without the default HTTP transport, without programs in $PATH and without standard error. It returns an error for one
// that exceeds its limits. Such a function cannot be ended: it is left behind, still without network and programs, and
// the process has to end.
func Run(most Limits, run func()) error {
	transport, path := http.DefaultTransport, os.Getenv("PATH")
	http.DefaultTransport = offline{}
	if err := os.Unsetenv("PATH"); err != nil {
		return err
	}
	stderr := os.Stderr
	silent, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	os.Stderr = silent
	defer func() { os.Stderr = stderr }()
	done := make(chan struct{})
	before := HeapBytes()
	go func() {
		defer close(done)
		run()
	}()
	tick, deadline := time.NewTicker(20*time.Millisecond), time.NewTimer(most.Time)
	defer tick.Stop()
	defer deadline.Stop()
	for {
		select {
		case <-done:
			http.DefaultTransport = transport
			if err := silent.Close(); err != nil {
				return err
			}
			return os.Setenv("PATH", path)
		case <-deadline.C:
			return fmt.Errorf("this takes longer than %s", most.Time)
		case <-tick.C:
			if now := HeapBytes(); now > before+most.Bytes {
				return fmt.Errorf("this takes more than %d MiB", most.Bytes>>20)
			}
		}
	}
}

// HeapBytes returns the bytes of the heap that objects take.
func HeapBytes() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
