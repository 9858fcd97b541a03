package compliance

import (
	"fmt"
	"testing"

	"github.com/opgate/opgate/olm"
)

// BenchmarkEvaluate evaluates a policy and computes its next status. Plans are scanned once; their contents do not
// matter.
func BenchmarkEvaluate(b *testing.B) {
	for _, n := range []int{1, 2_000} {
		all := make([]*olm.InstallPlan, n)
		for i := range all {
			all[i] = plan(fmt.Sprintf("install-%d", i), olm.PhaseComplete, "etcd.v1.2.3")
		}
		in := input(enforced, running, plans(all...))
		b.Run(fmt.Sprintf("plans=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Finish(in, Evaluate(in), 10)
			}
		})
	}
}
