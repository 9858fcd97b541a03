package plugin

import (
	"testing"

	"github.com/opgate/opgate/rules/verdict"
)

// TestVerdictOf reads what API servers answer, with and without Opgate's own policies in them.
func TestVerdictOf(t *testing.T) {
	for name, c := range map[string]struct {
		message string
		said    string
		rule    verdict.RuleID
		want    verdict.Decision
	}{
		"a webhook denies": {
			message: `admission webhook "installplans.opgate.io" denied the request: installplan shop/x: etcd.v2 is not allowed by OperatorPolicy p/etcd (bundle/version): allowed is etcd.v1`,
			said:    "installplan shop/x: etcd.v2 is not allowed by OperatorPolicy p/etcd (bundle/version): allowed is etcd.v1", rule: "bundle/version", want: verdict.Deny,
		},
		"the API server holds": {
			message: `installplans.operators.coreos.com "x" is forbidden: ValidatingAdmissionPolicy 'opgate-backstop' with binding 'opgate-backstop' denied request: ` +
				`installplan shop/x: etcd.v2 is held by OperatorPolicy p/etcd (policy/unreadable): waits until the policy can be read`,
			said: "installplan shop/x: etcd.v2 is held by OperatorPolicy p/etcd (policy/unreadable): waits until the policy can be read",
			rule: "policy/unreadable", want: verdict.Hold,
		},
		"one of two denies": {
			message: `admission webhook "installplans.opgate.io" denied the request: a (policy/unreadable): b; c (bundle/version): d`,
			said:    "a (policy/unreadable): b; c (bundle/version): d", rule: "policy/unreadable", want: verdict.Deny,
		},
		"another webhook": {
			message: `admission webhook "deny.example.com" denied the request: not on Fridays (see/wiki)`,
			said:    "not on Fridays (see/wiki)", want: verdict.Deny,
		},
	} {
		t.Run(name, func(t *testing.T) {
			refusal, found := refusalIn(c.message)
			v := verdictOf(refusal)
			if !found || v.Decision != c.want || len(v.Reasons) != 1 || v.Reasons[0].Rule != c.rule ||
				v.Reasons[0].Message != c.said {
				t.Errorf("found is %t, the verdict %+v", found, v)
			}
		})
	}
	if _, found := refusalIn(
		`installplans.operators.coreos.com "x" is forbidden: User "bob" cannot patch resource "installplans"`); found {
		t.Error("a missing right is taken for a verdict")
	}
}
