package rules

import (
	"fmt"
	"strings"
	"testing"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// TestE1OneViolationCoversAll: a violation that exists excuses an update only if all that the Constraint reads stays as
// it is (threat O34).
func TestE1OneViolationCoversAll(t *testing.T) {
	const (
		pods       = `{"apiGroups":[""],"resources":["pods"],"verbs":["*"]}`
		everything = `{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}`
	)
	csv := func(install, clusterRule, annotations string) *olm.CSV {
		c, err := olm.Decode[olm.CSV](fmt.Appendf(nil, `{"metadata":{"namespace":"shop","name":"etcd.v1","annotations":{%s}},
			"spec":{"displayName":%q,"install":{"spec":{"clusterPermissions":[{"rules":[%s]}]}}}}`, annotations, install, clusterRule))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	noWildcards := ruleOf("no-wildcards", `!clusterPermissions.exists(r, "*" in r.verbs)`, "no wildcards",
		constraint.Require)
	certified := ruleOf("certified", `properties.exists(p, p.type == "certified")`, "only certified",
		constraint.Require)
	noted := ruleOf("noted", `"reviewed" in annotations`, "only reviewed", constraint.Require)
	const (
		etcd = `"operatorframework.io/properties":"{\"properties\":[{\"type\":\"olm.package\",\"value\":{\"packageName\":\"etcd\",\"version\":\"1.0.0\"}}]}"`
		more = `"operatorframework.io/properties":"{\"properties\":[{\"type\":\"olm.package\",\"value\":{\"packageName\":\"etcd\",\"version\":\"1.0.1\"}}]}"`
	)
	for name, c := range map[string]struct {
		constraint *constraint.Definition
		old        *olm.CSV
		new        *olm.CSV
		want       verdict.Decision
	}{
		"a larger violation of the same rule": {
			constraint: noWildcards,
			old:        csv("etcd", pods, etcd),
			new:        csv("etcd", everything, etcd),
			want:       verdict.Deny,
		},
		"more beside the violation": {
			constraint: noWildcards,
			old:        csv("etcd", pods, etcd),
			new:        csv("etcd", pods+","+everything, etcd),
			want:       verdict.Deny,
		},
		"other fields of the spec under a rule on it": {
			constraint: noWildcards,
			old:        csv("etcd", pods, etcd),
			new:        csv("a better name", pods, etcd),
			want:       verdict.Deny,
		},
		"other properties under a rule on permissions": {
			constraint: noWildcards,
			old:        csv("etcd", pods, etcd),
			new:        csv("etcd", pods, more),
			want:       verdict.Allow,
		},
		"other properties under a rule on properties": {
			constraint: certified,
			old:        csv("etcd", pods, etcd),
			new:        csv("etcd", pods, more),
			want:       verdict.Deny,
		},
		"other permissions under a rule on properties": {
			constraint: certified,
			old:        csv("etcd", pods, etcd),
			new:        csv("etcd", everything, etcd),
			want:       verdict.Allow,
		},
		"other annotations under a rule on annotations": {
			constraint: noted,
			old:        csv("etcd", pods, etcd),
			new:        csv("a better name", pods, etcd+`,"x":"y"`),
			want:       verdict.Deny,
		},
		"the violation ends": {
			constraint: noWildcards,
			old:        csv("etcd", everything, etcd),
			new:        csv("etcd", strings.ReplaceAll(pods, "*", "get"), etcd),
			want:       verdict.Allow,
		},
		"a smaller violation": {
			constraint: noWildcards,
			old:        csv("etcd", everything, etcd),
			new:        csv("etcd", pods, etcd),
			want:       verdict.Deny,
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := JudgeCSV(CSVInput{Old: c.old, New: c.new,
				Namespace: state.NewNamespace("shop", state.NamespaceContents{Exists: true, Facts: aroundKubernetes,
					Constraints: under(c.constraint)})})
			if v.Decision != c.want || c.want == verdict.Deny && !strings.Contains(v.Refusal(), "(bundle/constraint)") {
				t.Errorf("decision is %s, want %s: %s", v.Decision, c.want, v.Refusal())
			}
		})
	}
}
