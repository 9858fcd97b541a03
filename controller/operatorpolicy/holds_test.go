package operatorpolicy

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/olm"
)

// TestHolds: a hold is as old as its reason, and is reported once for each.
func TestHolds(t *testing.T) {
	noon := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	one := func(uid, note string) hold {
		return hold{plan: &olm.InstallPlan{Metadata: olm.ObjectMeta{Namespace: "shop", Name: "install-" + uid, UID: uid}}, note: note}
	}
	var h holds
	reported := func(all map[types.UID]hold, uid types.UID) {
		a := all[uid]
		a.reported = true
		all[uid] = a
	}
	reported(h.replace("shop", []hold{one("a", "not version 2"), one("b", "not version 2")}, noon), "a")
	all := h.replace("shop", []hold{one("a", "not version 2"), one("b", "not version 2")}, noon.Add(time.Second))
	if a, b := all["a"], all["b"]; !a.reported || b.reported || !a.since.Equal(noon) || !b.since.Equal(noon) {
		t.Errorf("holds for the same reason are %+v", all)
	}
	all = h.replace("shop", []hold{one("a", "not version 3")}, noon.Add(2*time.Second))
	if a := all["a"]; a.reported || !a.since.Equal(noon.Add(2*time.Second)) || len(all) != 1 {
		t.Errorf("a hold for another reason is %+v", all)
	}
	if h.replace("shop", nil, noon); len(h.of) != 0 {
		t.Errorf("%v is kept", h.of)
	}
	if all := h.replace("shop", []hold{one("a", "not version 3")}, noon); all["a"].reported {
		t.Error("a hold that had ended counts as reported")
	}
}

func TestEarlier(t *testing.T) {
	for _, c := range []struct{ a, b, want time.Duration }{{0, 0, 0}, {0, 2, 2}, {2, 0, 2}, {1, 2, 1}, {2, 1, 1}} {
		if got := earlier(c.a, c.b); got != c.want {
			t.Errorf("the earlier of %d and %d is %d", c.a, c.b, got)
		}
	}
}
