// Package faults tests an installation with the chart's defaults while its parts fail: replicas, the API server, etcd,
// OLM, the network between them, and objects that Opgate depends on. Each schedule is a row of a table. While its fault
// lasts, a policy is written and an attacker tries to get past it; afterwards the audit log and the metrics of the
// replicas have to show that nothing slipped through.
package faults

import (
	"os"
	"testing"

	"github.com/opgate/opgate/e2e/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }
