package harness

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/opgate/opgate/e2e/assets/tail"
	"github.com/opgate/opgate/e2e/cluster"
)

// Final begins the message of a failure that no second run excuses: something forbidden was admitted or installed, a write
// was lost, Opgate panicked, or an invariant broke. A test that fails otherwise is run once more, alone (tools/suite).
const Final = "FINAL: "

// crash is what a log of Opgate has after a panic, whether it was recovered from or not.
var crash = regexp.MustCompile(`(?m)^(panic|fatal error): .*|.*"recovered from a panic".*`)

// observe states, when a test ends, what its cluster cost in the meantime, and, if the test failed, how the logs of
// Opgate end, and whether it panicked.
func observe(t testing.TB, c *cluster.Cluster) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	before, _ := c.CPUTime(ctx) // the cost is for people: a test does not fail because it is not known
	t.Cleanup(func() {
		if after, err := c.CPUTime(ctx); err == nil {
			t.Logf("CPU time of its cluster: %.1fs", max(0, after-before).Seconds())
		}
		if !t.Failed() {
			return
		}
		logs, _ := filepath.Glob(filepath.Join(c.Dir(), "*", "opgate.log")) // the pattern is well-formed
		for _, name := range logs {
			t.Logf("%s ends with\n%s", name, tail.File(name, 5))
			log, err := os.ReadFile(name)
			if found := crash.Find(log); err == nil && found != nil {
				t.Errorf(Final+"Opgate panicked: %s", bytes.TrimSpace(found))
			}
		}
	})
}
