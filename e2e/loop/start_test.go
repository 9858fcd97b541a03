package loop

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	crclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
)

// BenchmarkFirstDenial reports the time from the start of the process to its first correct denial, by way of the API
// server, with N policies, each with its namespace and what the loop has made for it: the median and the longest, in
// ms. Run it with -benchtime 10x.
func BenchmarkFirstDenial(b *testing.B) {
	for _, policies := range []int{1, 1_000} {
		b.Run(fmt.Sprintf("policies=%d", policies), func(b *testing.B) {
			e := startSpeed(b, harness.StartWithoutGate(b), policies)
			e.waitQuiet(b)
			foreign := harness.Subscription(e.namespaces[policies-1], "foreign", harness.ForeignCatalog, "Manual")
			var took []float64
			for b.Loop() {
				e.Restart(b, cluster.GateOptions{Loop: true, SecureMetrics: true, Unready: true, Replaces: e.Gate})
				var denied time.Time
				harness.Time(b, "the first denial", func(ctx context.Context) error {
					err := e.Admin.Create(ctx, foreign.DeepCopy(), crclient.DryRunAll)
					if err == nil || !strings.Contains(err.Error(), "(subscription/catalog)") {
						return fmt.Errorf("got %w", err)
					}
					denied = time.Now()
					return nil
				})
				e.waitQuiet(b)
				took = append(took, float64(denied.Sub(e.Gate.Started).Milliseconds()))
			}
			slices.Sort(took)
			b.ReportMetric(took[len(took)/2], "p50-ms")
			b.ReportMetric(took[len(took)-1], "max-ms")
		})
	}
}
