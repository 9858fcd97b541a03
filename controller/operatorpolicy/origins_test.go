package operatorpolicy

import (
	"slices"
	"testing"
)

func TestDependents(t *testing.T) {
	var d dependents
	d.add("operators", "shop")
	d.add("operators", "bakery")
	d.add("operators", "shop")
	d.add("elsewhere", "lab")
	taken := d.take("operators")
	slices.Sort(taken)
	if !slices.Equal(taken, []string{"bakery", "shop"}) {
		t.Errorf("took %v", taken)
	}
	if again := d.take("operators"); len(again) != 0 {
		t.Errorf("took %v again", again)
	}
	if taken := d.take("elsewhere"); !slices.Equal(taken, []string{"lab"}) {
		t.Errorf("took %v", taken)
	}
}
