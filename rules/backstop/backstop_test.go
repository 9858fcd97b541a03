package backstop_test

import (
	"testing"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/backstop"
)

const (
	olmUser    = "system:serviceaccount:olm:olm-operator-serviceaccount"
	opgateUser = "system:serviceaccount:opgate-system:opgate"
	escalate   = "escalate clusterroles /"
)

var everything = backstop.Features{ValidatingAdmissionPolicy: true, MutatingAdmissionPolicy: true, Semver: true}

type spec = policyv1beta2.OperatorPolicySpec

func policy(name, namespace, pkg string, edit func(*spec)) *rules.OperatorPolicy {
	op := &policyv1beta2.OperatorPolicy{}
	op.Namespace, op.Name = "policies", name
	op.Spec = spec{RemediationAction: policyv1beta2.Enforce, ComplianceType: policyv1beta2.MustHave,
		UpgradeApproval: policyv1beta2.UpgradeApprovalAutomatic, Subscription: policyv1beta2.SubscriptionTemplate{Name: pkg, Namespace: namespace}}
	if edit != nil {
		edit(&op.Spec)
	}
	return rules.NewOperatorPolicy(op)
}

func versions(names ...string) func(*spec) { return func(s *spec) { s.Versions = names } }

func compile(t testing.TB, in backstop.Input) *backstop.Objects {
	t.Helper()
	if in.OLM == nil {
		in.OLM, in.Opgate = []string{olmUser}, opgateUser
	}
	o, err := backstop.Compile(in)
	if err != nil {
		t.Fatal(err)
	}
	return &o
}

func TestCompiles(t *testing.T) {
	o := compile(t, backstop.Input{Features: everything, Policies: []*rules.OperatorPolicy{policy("etcd", "shop", "etcd", versions("etcd.v1", "etcd.v2"))}})
	newAPIServer(t, o)
	for _, v := range o.Validating.Spec.Variables {
		t.Log(v.Name, v.Expression)
	}
}

func BenchmarkCompile(b *testing.B) {
	o := compile(b, backstop.Input{Features: everything, Policies: []*rules.OperatorPolicy{policy("etcd", "shop", "etcd", versions("etcd.v1", "etcd.v2"))}})
	for b.Loop() {
		newAPIServer(b, o)
	}
}
