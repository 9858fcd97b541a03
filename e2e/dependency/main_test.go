// Package dependency tests Policies with dependencies: what they wait for, and what is applied in which order.
package dependency

import (
	"os"
	"testing"

	"github.com/opgate/opgate/e2e/harness"
)

// TestMain enables OwnerReferencesPermissionEnforcement, as OpenShift does, on the one control plane of this package.
func TestMain(m *testing.M) {
	harness.VacantOptions.Owners = true
	os.Exit(harness.Main(m))
}
