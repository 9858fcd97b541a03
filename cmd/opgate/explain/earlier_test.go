package explain

import (
	"slices"
	"testing"

	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/verdict"
)

// TestEarlierIDs: an earlier ID, alone or in a refusal that was kept, stands for the rules that it became.
func TestEarlierIDs(t *testing.T) {
	list := all()
	for id, want := range map[string][]verdict.RuleID{
		"plan/version":         {bundle.RuleVersion},
		"(plan/version-range)": {bundle.RuleVersionRange},
		"plan/unknown-csv":     {bundle.RuleUnknown},
		"csv/constraint":       {bundle.RuleConstraint},
		"held (csv/contents), and not allowed (bundle/contents)": {bundle.RuleContents},
		"csv/policy": {bundle.RuleMustNotHave, "bundle/catalog", bundle.RuleVersion,
			bundle.RuleVersionRange,
			bundle.RuleUnknown, bundle.RuleConsent, bundle.RuleContents, rules.RuleCSVFrozen,
			bundle.RulePolicyUnreadable},
		"plan/frozen": {rules.RulePlanFrozen},
	} {
		found, _, err := find(list, id)
		var got []verdict.RuleID
		for _, r := range found {
			got = append(got, r.ID)
		}
		slices.Sort(got)
		slices.Sort(want)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %s, want %s, %v", id, got, want, err)
		}
	}
	if _, _, err := find(list, "csv/none"); err == nil {
		t.Error("a rule that never was is explained")
	}
}
