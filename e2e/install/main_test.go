// Package install tests how Opgate is installed, upgraded and removed, by helm and kubectl, and its certificates.
package install

import (
	"os"
	"testing"

	"github.com/opgate/opgate/e2e/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }
