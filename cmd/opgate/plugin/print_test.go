package plugin

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/opgate/opgate/olm"
)

// formatted returns the output of a command with a format.
func formatted(t *testing.T, format string, own ...string) *output {
	t.Helper()
	o, cmd := &output{}, &cobra.Command{}
	o.register(cmd, own...)
	if err := cmd.Flags().Set("output", format); err != nil {
		t.Fatal(err)
	}
	if err := o.complete(); err != nil {
		t.Fatal(err)
	}
	return o
}

// TestFormats prints by the formats of kubectl get. Strings are escaped: terminals would obey some.
func TestFormats(t *testing.T) {
	type plan struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
		Decision  string `json:"decision,omitempty"`
	}
	const hostile = "a\x1b[2J\x7f\u009b31m\u202e\U0001f600é"
	plans := []plan{{"shop", hostile, "Deny"}, {"shop", "b", ""}}
	key := func(p plan) types.NamespacedName { return types.NamespacedName{Namespace: p.Namespace, Name: p.Name} }
	printed := func(format string) string {
		var out bytes.Buffer
		if err := items(formatted(t, format), &out, olm.InstallPlanGVK, plans, key); err != nil {
			t.Fatalf("%s: %v", format, err)
		}
		if strings.ContainsFunc(out.String(), func(r rune) bool { return r != '\n' && unicode.In(r, unicode.Cc, unicode.Cf) }) {
			t.Errorf("%s prints %q", format, out.String())
		}
		return out.String()
	}
	const escaped = "a" + `\x1b[2J\x7f\u009b31m\u202e` + "\U0001f600é"
	for format, want := range map[string]string{
		"name": "installplan.operators.coreos.com/" + escaped + "\ninstallplan.operators.coreos.com/b\n",
		`jsonpath={range .items[*]}{.name}={.decision} {end}`:                            escaped + "=Deny b= ",
		`jsonpath={.items[?(@.decision=="Deny")].metadata.name}`:                         escaped,
		`go-template={{range .items}}{{.namespace}}/{{.name}} {{end}}`:                   "shop/" + escaped + " shop/b ",
		`go-template={{range .items}}{{.kind}} {{.apiVersion}}{{break}}{{end}}{{.kind}}`: "InstallPlan operators.coreos.com/v1alpha1List",
	} {
		if got := printed(format); got != want {
			t.Errorf("%s: got %q, want %q", format, got, want)
		}
	}
	var list struct{ Items []plan }
	if err := json.Unmarshal([]byte(printed("json")), &list); err != nil || len(list.Items) != 2 || list.Items[0] != plans[0] {
		t.Errorf("JSON: %+v, %v", list, err)
	}
	if got := printed("yaml"); !strings.HasPrefix(got, "apiVersion: v1\nitems:\n- apiVersion: operators.coreos.com/v1alpha1\n") {
		t.Errorf("YAML: %s", got)
	}
}

// TestTable has all columns in the wide format, no headers without them, and nothing that a terminal obeys.
func TestTable(t *testing.T) {
	rows := [][]string{{"a\x1b[2J", "Deny", "why"}, {"b", "Allow", "-"}}
	for _, tc := range []struct {
		format, want string
		noHeaders    bool
	}{
		{"", "NAME       VERDICT\na\\x1b[2J   Deny\nb          Allow\n", false},
		{formatWide, "NAME       VERDICT   MESSAGE\na\\x1b[2J   Deny      why\nb          Allow     -\n", false},
		{"", "a\\x1b[2J   Deny\nb          Allow\n", true},
	} {
		o := formatted(t, tc.format, formatWide)
		o.noHeaders = tc.noHeaders
		var out bytes.Buffer
		if err := printers.NewTablePrinter(o.table()).PrintObj(table(2, []string{"NAME", "VERDICT", "MESSAGE"}, rows),
			&out); err != nil || out.String() != tc.want {
			t.Errorf("%q: got %q, %v, want %q", tc.format, out.String(), err, tc.want)
		}
	}
}
