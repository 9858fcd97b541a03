package plugin

import (
	"bufio"
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
	"unicode"

	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/rules/verdict"
)

// TestTable aligns columns by what is seen, and colors only what is colored.
func TestTable(t *testing.T) {
	rows := [][]cell{{plain("a\x1b[2J"), decided("Deny", verdict.Deny), plain("x")}, {plain("b"),
		decided("Allow", verdict.Allow), plain("")}}
	for name, tc := range map[string]struct {
		colored bool
		want    string
	}{
		"plain": {false, "NAME       VERDICT   LAST\na\\x1b[2J   Deny      x\nb          Allow     \n"},
		"colored": {true, bold + "NAME" + reset + "       " + bold + "VERDICT" + reset + "   " + bold + "LAST" + reset +
			"\na\\x1b[2J   " + red + "Deny" + reset + "      x\nb          " + green + "Allow" + reset + "     \n"},
	} {
		var out bytes.Buffer
		p := &printer{bufio.NewWriter(&out), tc.colored}
		p.table([]string{"NAME", "VERDICT", "LAST"}, rows)
		if err := p.Flush(); err != nil {
			t.Fatal(err)
		}
		if out.String() != tc.want {
			t.Errorf("%s: got %q, want %q", name, out.String(), tc.want)
		}
	}
}

// TestAttackDataForTerminals: terminals obey control characters beyond ASCII as well. JSON keeps the text.
func TestAttackDataForTerminals(t *testing.T) {
	value := map[string]any{"name": "a\x1b[2J\x7f\u009b31m\u202e\U0001f600é"}
	for _, format := range []string{formatJSON, formatYAML} {
		var out bytes.Buffer
		if err := printData(&out, format, value); err != nil {
			t.Fatal(err)
		}
		for _, r := range out.String() {
			if r != '\n' && unicode.In(r, unicode.Cc, unicode.Cf) {
				t.Errorf("%s has %q: %q", format, r, out.String())
			}
		}
		var got map[string]any
		want, read := value, json.Unmarshal
		if format == formatYAML {
			want, read = map[string]any{"name": `a\x1b[2J\x7f\u009b31m\u202e😀é`},
				func(data []byte, into any) error { return yaml.Unmarshal(data, into) }
		}
		if err := read(out.Bytes(), &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %q, %v; want %q", format, got, err, want)
		}
	}
}
