// Package loop tests the background loop, with scripts that write what OLM would, and beside a real OLM.
package loop

import (
	"os"
	"testing"

	"github.com/opgate/opgate/e2e/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }
