// Package conversion tests OperatorPolicy in its versions on a real API server.
package conversion

import (
	"os"
	"testing"

	"github.com/opgate/opgate/e2e/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// shared returns the environment of these tests. The backstop is off: no version matters to it, and the API server
// would compile it again with each policy.
func shared(t testing.TB) *harness.Env {
	t.Helper()
	return harness.SharedWithoutBackstop(t)
}
