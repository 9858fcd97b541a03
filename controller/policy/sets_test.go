package policy

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	policyv1beta1 "github.com/opgate/opgate/api/policy/v1beta1"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/snapshot"
)

func setOfMembers(name string, members ...string) *policyv1beta1.PolicySet {
	s := &policyv1beta1.PolicySet{}
	s.Namespace, s.Name, s.Generation = "shop", name, 1
	for _, m := range members {
		s.Spec.Policies = append(s.Spec.Policies, policyv1beta1.NonEmptyString(m))
	}
	return s
}

// TestF1PolicySetsAreBounded stores PolicySets of 1.2 MB, which an API server with an older definition accepts, and as
// many bytes in sets of the length that the definition allows, and measures what the snapshot retains.
func TestF1PolicySetsAreBounded(t *testing.T) {
	const most = 8 // bytes that are retained for one that is stored
	for _, tc := range []struct {
		name          string
		sets, members int
		evaluated     bool
	}{
		{name: "control: sets of three members", sets: 5, members: 3, evaluated: true},
		{name: "attack: five sets of 100,000 members", sets: 5, members: 100_000},
		{name: "attack: as many members in sets of the largest size", sets: 500, members: dependency.MaxMembers,
			evaluated: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var raws [][]byte
			stored := 0
			for i := range tc.sets {
				names := make([]string, tc.members)
				for j := range names {
					names[j] = fmt.Sprintf("p%d-%d", i, j)
				}
				set := setOfMembers(fmt.Sprint("set", i), names...)
				set.Spec.Description = strings.Repeat("x", 1_000)
				raw, err := json.Marshal(set)
				if err != nil {
					t.Fatal(err)
				}
				raws, stored = append(raws, raw), stored+len(raw)
			}
			before := liveHeap()
			var reader snapshot.Reader
			var sets []*snapshot.Object
			for _, raw := range raws {
				sets = append(sets, reader.Read(snapshot.PolicySets, raw))
			}
			retained := liveHeap() - before
			if bound := int64(most*stored + 64<<10); retained > bound {
				t.Errorf("%d bytes are retained for %d stored ones, want at most %d", retained, stored, bound)
			}
			if found := sets[0].PolicySet().Known().Has(fmt.Sprintf("p0-%d", tc.members-1)); found != tc.evaluated {
				t.Errorf("the last member is found: %t, want %t", found, tc.evaluated)
			}
			for _, o := range sets {
				if evaluated := o.PolicySet().Known().Fault == ""; evaluated != tc.evaluated {
					t.Fatalf("evaluated: %t, want %t", evaluated, tc.evaluated)
				}
			}
			runtime.KeepAlive(raws)
			runtime.KeepAlive(sets)
		})
	}
}

// liveHeap returns the bytes of all reachable objects.
func liveHeap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
