package rules

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/carrier"
)

// TestBundlesParsedOnce checks that the bundle properties of a prepared plan, and of one whose consent is checked, are
// not parsed again, and that those of a plan that OLM is done with are not kept in memory.
func TestBundlesParsedOnce(t *testing.T) {
	planOf := func(phase string) *olm.InstallPlan {
		plan := pendingPlan("etcd 0.9.4")
		plan.Status.Phase = phase
		var kinds strings.Builder
		for i := range 1000 {
			fmt.Fprintf(&kinds, `,{"type":"olm.gvk","value":{"group":"g%d","version":"v1","kind":"K"}}`, i)
		}
		lookup := &plan.Status.BundleLookups[0]
		lookup.Properties = strings.TrimSuffix(lookup.Properties, "]}") + kinds.String() + "]}"
		return plan
	}
	parsed := planOf(olm.PhaseRequiresApproval)
	want := carrier.OfPlan(parsed, nil)
	for _, c := range []struct {
		name    string
		phase   string
		prepare func(*olm.InstallPlan)
		kept    bool
	}{
		{name: "stored", phase: olm.PhaseRequiresApproval, prepare: carrier.PreparePlan, kept: true},
		{name: "consent", phase: olm.PhaseRequiresApproval, kept: true, prepare: func(p *olm.InstallPlan) {
			(&PlanUpdateInput{Old: p}).ConsentNeeds()
		}},
		{name: "running", phase: olm.PhaseInstalling, prepare: carrier.PreparePlan, kept: true},
		{name: "complete", phase: olm.PhaseComplete, prepare: carrier.PreparePlan},
		{name: "failed", phase: olm.PhaseFailed, prepare: carrier.PreparePlan},
	} {
		t.Run(c.name, func(t *testing.T) {
			plan := planOf(c.phase)
			c.prepare(plan)
			got := carrier.OfPlan(plan, nil)
			if !reflect.DeepEqual(got[0].Properties, want[0].Properties) ||
				!reflect.DeepEqual(got[0].Provides, want[0].Provides) {
				t.Error("other properties than those of a plan that is not prepared")
			}
			allocations := testing.AllocsPerRun(3, func() { carrier.OfPlan(plan, nil) })
			if again := allocations > 1000; again == c.kept {
				t.Errorf("%v allocations", allocations)
			}
		})
	}
}
