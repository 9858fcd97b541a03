package admission

import (
	"encoding/json"
	"fmt"
	"testing"
)

// TestAppliesManual shows which updates apply Manual where it is stored. TestRequestedApprovalIsHeard of the end-to-end tests
// has what a real API server sends.
func TestAppliesManual(t *testing.T) {
	entry := func(operation, at, fields string) string {
		return fmt.Sprintf(`{"manager":"git","operation":%q,"time":%q,"fieldsV1":{%s}}`, operation, at, fields)
	}
	const approval, note = `"f:spec":{"f:installPlanApproval":{}}`, `"f:metadata":{"f:annotations":{"f:opgate.io/requested-approval":{}}}`
	object := func(label, last, managed string) json.RawMessage {
		lastApplied, _ := json.Marshal(last)
		return fmt.Appendf(nil, `{"metadata":{"labels":{"a":%q},"annotations":{"kubectl.kubernetes.io/last-applied-configuration":%s},
			"managedFields":[%s]},"spec":{"installPlanApproval":"Manual"}}`, label, lastApplied, managed)
	}
	applied := func(approval, note string) string {
		return fmt.Sprintf(`{"metadata":{"annotations":{"opgate.io/requested-approval":%q}},"spec":{"installPlanApproval":%q}}`, note, approval)
	}
	for name, c := range map[string]struct {
		old, object json.RawMessage
		want        bool
	}{
		"the same again":              {object("", "", entry("Apply", "1", approval)), object("", "", entry("Apply", "1", approval)), true},
		"applied with a label":        {object("", "", entry("Apply", "1", approval)), object("b", "", entry("Apply", "2", approval)), true},
		"applied for the first time":  {object("", "", ""), object("", "", entry("Apply", "2", approval)), true},
		"another field":               {object("", "", ""), object("b", "", entry("Apply", "2", `"f:spec":{"f:channel":{}}`)), false},
		"applied with the annotation": {object("", "", ""), object("b", "", entry("Apply", "2", approval+","+note)), false},
		"an update":                   {object("", "", entry("Update", "1", approval)), object("b", "", entry("Update", "2", approval)), false},
		"an update by who applied it": {object("", "", entry("Apply", "1", approval)), object("b", "", entry("Apply", "1", approval)), false},
		"a document":                  {object("", applied("Automatic", ""), ""), object("", applied("Manual", ""), ""), true},
		"a document as before":        {object("", applied("Manual", ""), ""), object("b", applied("Manual", ""), ""), false},
		"a document for Automatic":    {object("", applied("Manual", ""), ""), object("", applied("Automatic", ""), ""), false},
		"a document with the annotation": {object("", applied("Automatic", ""), ""), object("", applied("Manual", "Automatic"), ""),
			false},
		"no document":              {object("", applied("Automatic", ""), ""), object("", "Manual", ""), false},
		"entries that are no ones": {object("", "", ""), object("", "", `1,[],{"fieldsV1":"f:spec"}`), false},
	} {
		t.Run(name, func(t *testing.T) {
			req := &request[json.RawMessage, json.RawMessage]{Object: &c.object, OldObject: &c.old}
			req.Options.FieldManager = "git"
			if got := appliesManual(req); got != c.want {
				t.Errorf("it applies Manual: %t", got)
			}
			req.Options.FieldManager = "another"
			if appliesManual(req) != (c.want && name == "a document") {
				t.Error("another manager's entry counts")
			}
		})
	}
}
