// Package loop tests the background loop, with scripts that write what OLM would, and beside a real OLM.
package loop

import (
	"os"
	"testing"

	"github.com/opgate/opgate/e2e/harness"
)

// TestMain makes the control plane of this package one that is not OpenShift, as that with OLM.
func TestMain(m *testing.M) {
	harness.VacantOptions.OpenShift = ""
	os.Exit(harness.Main(m))
}
