// Package install tests, on clusters, what the packages here make: the bundle, releases, and the chart with its alerts
// and dashboard.
package install_test

import (
	"os"
	"testing"

	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/e2e/install"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// site has what only tests here do.
type site struct{ *install.Site }
