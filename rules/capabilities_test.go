package rules

import (
	"fmt"
	"testing"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/carrier"
)

// TestA4Capabilities: bundles that require and provide the same capability thousands of times do not multiply the work.
func TestA4Capabilities(t *testing.T) {
	const kinds = 2000
	bundles := make([]carrier.Bundle, 10)
	for i := range bundles {
		for j := range 2 * kinds {
			kind := olm.Capability{Group: "g", Version: "v1", Kind: fmt.Sprint(j % kinds)}
			bundles[i].Provides = append(bundles[i].Provides, kind)
			bundles[i].Requires = append(bundles[i].Requires, kind)
		}
	}
	entered, asked := map[int]bool{}, 0
	carrier.AlongRequired(bundles, []int{0}, func(i, _ int) bool {
		defer func() { entered[i] = true }()
		asked++
		return !entered[i]
	})
	if n := len(bundles); len(entered) != n || asked > (n+1)*n*kinds {
		t.Errorf("%d entered, asked %d times", len(entered), asked)
	}
}
