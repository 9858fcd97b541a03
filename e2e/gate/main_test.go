// Package gate tests admission on a real API server, through the real kubectl, and in front of a real OLM.
package gate

import (
	"os"
	"testing"

	"github.com/opgate/opgate/e2e/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }
