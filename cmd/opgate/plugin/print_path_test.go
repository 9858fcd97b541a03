package plugin

import (
	"bytes"
	"strings"
	"testing"
)

// TestPaths prints by the formats of kubectl get. Strings are escaped: terminals would obey some.
func TestPaths(t *testing.T) {
	plans := []map[string]any{{"name": "a\x1b[2J", "decision": "Deny",
		"operators": []any{map[string]any{"csv": "etcd.v1"}, map[string]any{"csv": "etcd.v2"}}},
		{"name": "b", "outdated": true}}
	for _, tc := range []struct{ format, want string }{
		{`jsonpath={[*].name}`, `a\x1b[2J b`},
		{`jsonpath={range [*]}{.name}{"="}{.decision}{"\n"}{end}`, `a\x1b[2J=Deny` + "\nb=\n"},
		{`jsonpath={[?(@.decision=="Deny")].operators[*].csv}`, "etcd.v1 etcd.v2"},
		{`custom-columns=PLAN:.name,VERDICT:decision,CSVS:{.operators[*].csv}`,
			"PLAN       VERDICT   CSVS\n" + `a\x1b[2J   Deny      etcd.v1 etcd.v2` + "\nb          <none>    <none>\n"},
	} {
		var out bytes.Buffer
		if err := printData(&out, tc.format, plans); err != nil || out.String() != tc.want {
			t.Errorf("%s: got %q, %v; want %q", tc.format, out.String(), err, tc.want)
		}
	}
	var out bytes.Buffer
	if err := printData(&out, "custom-columns=NAME:.name", plans[1]); err != nil || out.String() != "NAME\nb\n" {
		t.Errorf("an object: got %q, %v", out.String(), err)
	}
	for format, want := range map[string]string{
		"jsonpath=": "the template is empty", "jsonpath={.a": "unclosed", "custom-columns=": "write HEADER:PATH",
		"custom-columns=A":     "write HEADER:PATH",
		"custom-columns=A:.x[": "unterminated",
	} {
		if err := checkPaths(format); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", format, err, want)
		}
	}
}
