// Package conversion tests OperatorPolicy in its versions on a real API server.
package conversion

import (
	"os"
	"testing"

	"github.com/opgate/opgate/e2e/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }
