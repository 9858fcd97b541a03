// Package dependency tests Policies with dependencies: what they wait for, and what is applied in which order.
package dependency

import (
	"os"
	"testing"

	"github.com/opgate/opgate/e2e/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }
