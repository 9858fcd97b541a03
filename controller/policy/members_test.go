package policy

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

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

func TestMembers(t *testing.T) {
	var m members
	read := func(name string, policies ...string) *dependency.Set {
		return dependency.ReadSet(setOfMembers(name, policies...))
	}
	setsOf := func(policy string) string {
		var names []string
		for _, key := range m.sets(types.NamespacedName{Namespace: "shop", Name: policy}) {
			names = append(names, key.Name)
		}
		slices.Sort(names)
		return strings.Join(names, " ")
	}
	one, two := read("one", "a", "b"), read("two", "b", "c")
	m.change(two.Key(), two)
	m.change(one.Key(), one)
	for policy, want := range map[string]string{"a": "one", "b": "one two", "c": "two", "d": ""} {
		if got := setsOf(policy); got != want {
			t.Errorf("%s is a member of %q, want %q", policy, got, want)
		}
	}
	if got := m.sets(types.NamespacedName{Namespace: "elsewhere", Name: "a"}); len(got) > 0 {
		t.Errorf("a Policy of another namespace is a member of %v", got)
	}
	m.change(one.Key(), read("one", "d"))
	m.change(two.Key(), nil)
	for policy, want := range map[string]string{"a": "", "b": "", "c": "", "d": "one"} {
		if got := setsOf(policy); got != want {
			t.Errorf("afterwards %s is a member of %q, want %q", policy, got, want)
		}
	}
}

// TestF1PolicySetsAreBounded stores PolicySets of 1.2 MB, which an API server with an older definition accepts, and as
// many bytes in sets of the length that the definition allows, and measures what the snapshot and the index of members
// retain.
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
			var index members
			var sets []*snapshot.Object
			for _, raw := range raws {
				o := reader.Read(snapshot.PolicySets, raw)
				sets = append(sets, o)
				index.change(o.Key(), o.PolicySet().Known())
			}
			retained := liveHeap() - before
			if bound := int64(most*stored + 64<<10); retained > bound {
				t.Errorf("%d bytes are retained for %d stored ones, want at most %d", retained, stored, bound)
			}
			last := types.NamespacedName{Namespace: "shop", Name: fmt.Sprintf("p0-%d", tc.members-1)}
			if found := len(index.sets(last)) == 1; found != tc.evaluated {
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
