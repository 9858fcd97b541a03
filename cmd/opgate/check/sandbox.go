package check

import (
	"fmt"
	"net/http"
	"os"
	"runtime/metrics"
	"time"
)

// limits are what a function may take.
type limits struct {
	// bytes is the growth of the heap, garbage included.
	bytes uint64
	time  time.Duration
}

// buildLimits are those of all kustomizations of the input: replacements and patches of a few lines multiply text.
var buildLimits = limits{bytes: 2 << 30, time: 2 * time.Minute}

// offline is an HTTP transport without a network.
type offline struct{}

func (offline) RoundTrip(r *http.Request) (*http.Response, error) {
	return nil, fmt.Errorf("%s is not loaded: kustomizations are built without network", r.URL.Redacted())
}

// inSandbox runs a function without the default HTTP transport and without programs in $PATH: the checks of a kustomization name what it
// would load from elsewhere, this makes sure that nothing is. A function that exceeds its limits cannot be ended. It is left behind, still
// without network and programs, and the command has to end.
func inSandbox(most limits, run func()) error {
	transport, path := http.DefaultTransport, os.Getenv("PATH")
	http.DefaultTransport = offline{}
	if err := os.Unsetenv("PATH"); err != nil {
		return err
	}
	done := make(chan struct{})
	before := heapBytes()
	go func() {
		defer close(done)
		run()
	}()
	tick, deadline := time.NewTicker(20*time.Millisecond), time.NewTimer(most.time)
	defer tick.Stop()
	defer deadline.Stop()
	for {
		select {
		case <-done:
			http.DefaultTransport = transport
			return os.Setenv("PATH", path)
		case <-deadline.C:
			return fmt.Errorf("this takes longer than %s", most.time)
		case <-tick.C:
			if now := heapBytes(); now > before+most.bytes {
				return fmt.Errorf("this takes more than %d MiB", most.bytes>>20)
			}
		}
	}
}

// heapBytes returns the bytes of the heap that objects take.
func heapBytes() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
