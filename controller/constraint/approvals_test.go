package constraint

import (
	"encoding/json"
	"testing"

	"github.com/opgate/opgate/rules/verdict"
)

// TestMerged checks that changes of a Subscription are the same as a merge patch.
func TestMerged(t *testing.T) {
	for want, changes := range map[string][]verdict.Change{
		`{"metadata":{"annotations":{"opgate.io/requested-approval":null}},"spec":{"installPlanApproval":"Manual"}}`: {
			{Path: "/spec/installPlanApproval", Value: "Manual"},
			{Path: "/metadata/annotations/opgate.io~1requested-approval", Remove: true}},
		`{"metadata":{"annotations":{"opgate.io/requested-approval":"Automatic"}}}`: {
			{Path: "/metadata/annotations", Value: map[string]string{"opgate.io/requested-approval": "Automatic"}}},
	} {
		if data, err := json.Marshal(merged(changes)); err != nil || string(data) != want {
			t.Errorf("%s (%v), want %s", data, err, want)
		}
	}
}
