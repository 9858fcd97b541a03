// Package explore tests sequences of what users do, over a real OLM: walks that a seed chooses, and scripts in
// testdata. A walk has namespaces of its own. A small model of the policies and the graph of the catalog predicts what
// is installed in the end.
package explore

import (
	"os"
	"testing"

	"github.com/opgate/opgate/e2e/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }
