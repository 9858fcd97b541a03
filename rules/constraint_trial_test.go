package rules

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// TestConstraintIsTried: a rule that costs too much for most of the largest operators of the cluster is refused, one that
// costs too much for a few of them is not: any user who installs such operators could keep Constraints from being written.
func TestConstraintIsTried(t *testing.T) {
	const loops = `properties.all(a, properties.all(b, a.type == b.type || a.value.text != b.value.text || true))`
	large := make([]string, 600)
	for i := range large {
		large[i] = fmt.Sprintf(`{"type":"t%d","value":{"text":"%d"}}`, i, i)
	}
	for name, test := range map[string]struct {
		hostile, good int
		edited        bool // what is stored has the rule, and an annotation changes
		want          verdict.Decision
		warned        bool
	}{
		"small operators":                         {good: 60},
		"attack: one costly operator beside good": {hostile: 1, good: 20, warned: true},
		"most operators":                          {hostile: 3, good: 1, want: verdict.Deny, warned: true},
		"most operators, and it is stored":        {hostile: 3, good: 1, edited: true, warned: true},
	} {
		t.Run(name, func(t *testing.T) {
			var namespaces []*state.Namespace
			for i := range test.hostile + test.good {
				properties := `[{"type":"olm.package","value":{"packageName":"etcd","version":"0.9.4"}}]`
				if i < test.hostile {
					properties = `[` + strings.Join(large, ",") + `]`
				}
				wrapped, err := json.Marshal(`{"properties":` + properties + `}`)
				if err != nil {
					t.Fatal(err)
				}
				csv, err := olm.Decode[olm.CSV](fmt.Appendf(nil, `{"metadata":{"namespace":"ns-%d","name":"etcd.v1",
					"annotations":{"operatorframework.io/properties":%s}}}`, i, wrapped))
				if err != nil {
					t.Fatal(err)
				}
				installed, _ := installedBy(csv)
				namespaces = append(namespaces, state.NewNamespace(csv.Metadata.Namespace,
					state.NamespaceContents{CSVs: []state.Installed{installed}, Exists: true}))
			}
			in := ConstraintInput{Constraint: &constraintv1.Constraint{}, Namespaces: slices.Values(namespaces),
				Constraints: under()}
			in.Constraint.Spec.Rules = []constraintv1.ConstraintRule{{Expression: loops}}
			if test.edited {
				in.Old = in.Constraint.DeepCopy()
				in.Constraint.Annotations = map[string]string{metakey.Pending: "a/b"}
			}
			v := JudgeConstraint(in)
			if v.Decision != test.want || (len(v.WarningTexts()) > 0) != test.warned {
				t.Errorf("it is %s: %v, warned of %q", v.Decision, v.Reasons, v.WarningTexts())
			}
		})
	}
}
