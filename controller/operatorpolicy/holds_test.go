package operatorpolicy

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/olm"
)

// TestHolds: a hold is as old as its reason, which ends with it.
func TestHolds(t *testing.T) {
	noon := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	one := func(uid, note string) hold {
		return hold{plan: &olm.InstallPlan{Metadata: olm.ObjectMeta{Namespace: "shop", Name: "install-" + uid,
			UID: uid}}, note: note}
	}
	var n namespaceState
	hold := func(at time.Time, held ...hold) map[types.UID]hold {
		n.hold(held, at)
		return n.held
	}
	hold(noon, one("a", "not version 2"), one("b", "not version 2"))
	all := hold(noon.Add(time.Second), one("a", "not version 2"), one("b", "not version 2"))
	if a, b := all["a"], all["b"]; !a.since.Equal(noon) || !b.since.Equal(noon) {
		t.Errorf("holds for the same reason are %+v", all)
	}
	all = hold(noon.Add(2*time.Second), one("a", "not version 3"))
	if a := all["a"]; !a.since.Equal(noon.Add(2*time.Second)) || len(all) != 1 {
		t.Errorf("a hold for another reason is %+v", all)
	}
	if len(hold(noon)) != 0 {
		t.Errorf("%v is kept", n.held)
	}
	if all := hold(noon, one("a", "not version 3")); !all["a"].since.Equal(noon) {
		t.Errorf("a hold that had ended is %+v", all)
	}
}

func TestEarlier(t *testing.T) {
	for _, c := range []struct{ a, b, want time.Duration }{{0, 0, 0}, {0, 2, 2}, {2, 0, 2}, {1, 2, 1}, {2, 1, 1}} {
		if got := earlier(c.a, c.b); got != c.want {
			t.Errorf("the earlier of %d and %d is %d", c.a, c.b, got)
		}
	}
}
