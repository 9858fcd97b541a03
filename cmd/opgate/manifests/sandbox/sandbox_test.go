package sandbox_test

import (
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opgate/opgate/cmd/opgate/manifests/sandbox"
)

// TestH3SandboxLimits: a function that takes too much memory or time is left behind, still without network and
// programs.
func TestH3SandboxLimits(t *testing.T) {
	for name, c := range map[string]struct {
		most sandbox.Limits
		want string
	}{
		"memory": {sandbox.Limits{Bytes: 64 << 20, Time: time.Hour}, "more than 64 MiB"},
		"time":   {sandbox.Limits{Bytes: 1 << 30, Time: 50 * time.Millisecond}, "longer than 50ms"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("PATH", "/bin")
			transport, stop, stopped := http.DefaultTransport, make(chan struct{}), make(chan struct{})
			t.Cleanup(func() { http.DefaultTransport = transport })
			var taken [][]byte
			err := sandbox.Run(c.most, func() {
				defer close(stopped)
				for {
					select {
					case <-stop:
						return
					case <-time.After(time.Millisecond):
						if name == "memory" {
							taken = append(taken, slices.Repeat([]byte{1}, 1<<20))
						}
					}
				}
			})
			close(stop)
			<-stopped
			if err == nil || !strings.Contains(err.Error(), c.want) || os.Getenv("PATH") != "" ||
				http.DefaultTransport == transport {
				t.Errorf("%v, $PATH %q, %d MiB", err, os.Getenv("PATH"), len(taken))
			}
		})
	}
}
