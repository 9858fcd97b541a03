package snapshot

import (
	"slices"
	"strings"
	"testing"
	"time"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/verdict"
)

// TestUnreadableTargets stores policies that do not show what they govern: they hold all that they may govern, in
// namespaces that exist, that are created later and that are not known, and nothing once they can be read (threat G5).
func TestUnreadableTargets(t *testing.T) {
	const rest = `"remediationAction":"enforce","complianceType":"musthave","upgradeApproval":"Automatic"`
	for _, c := range []struct {
		name, spec string
		// holds are the packages that are held, as NAMESPACE/PACKAGE, of etcd and vault in three namespaces.
		holds  string
		inform bool
	}{
		{name: "a name that is a number", spec: `"subscription":{"name":7,"namespace":"shop"}`,
			holds: "shop/etcd shop/vault"},
		{name: "no name", spec: `"subscription":{"namespace":"shop"}`, holds: "shop/etcd shop/vault"},
		{name: "a namespace that is a number", spec: `"subscription":{"name":"etcd","namespace":7}`,
			holds: "bar/etcd new/etcd shop/etcd"},
		{name: "a misspelled namespace", spec: `"subscription":{"name":"etcd","namespce":"shop"}`,
			holds: "bar/etcd new/etcd shop/etcd"},
		{name: "a subscription that is a text", spec: `"subscription":"etcd"`,
			holds: "bar/etcd bar/vault new/etcd new/vault shop/etcd shop/vault"},
		{name: "two names", spec: `"subscription":{"name":"etcd","name":"vault","namespace":"shop"}`,
			holds: "bar/etcd bar/vault new/etcd new/vault shop/etcd shop/vault"},
		{name: "a group that is a number", spec: `"operatorGroup":7,"subscription":{"name":"etcd","namespace":"shop"}`,
			holds: "shop/etcd"},
		{name: "one that only informs", spec: `"remediationAction":"inform","subscription":7`, inform: true},
		{name: "a template", spec: `"subscription":{"name":"{{ x }}","namespace":"shop"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := `{"metadata":{"namespace":"policies","name":"p"},"spec":{` + c.spec + `,` + rest + `}}`
			if c.inform {
				text = `{"metadata":{"namespace":"policies","name":"p"},"spec":{` + c.spec + `}}`
			}
			policy := read(OperatorPolicies, text)
			b := Builder{Unjudged: []string{"opgate-system"}}
			b.Put(time.Time{}, namespaceOf("shop"), namespaceOf("opgate-system"))
			b.build(time.Time{}, []event{{now: policy}})
			s, _ := b.build(time.Time{}, []event{{now: namespaceOf("bar")}})
			if got := heldIn(s); got != c.holds {
				t.Errorf("held are %q, want %q", got, c.holds)
			}
			readable := read(OperatorPolicies,
				`{"metadata":{"namespace":"policies","name":"p"},"spec":{"subscription":{"name":"grafana","namespace":"shop"},`+rest+`}}`)
			s, change := b.build(time.Time{}, []event{{old: policy, now: readable}})
			if got := heldIn(s); got != "" {
				t.Errorf("held are %q after it can be read", got)
			}
			if strings.Contains(c.holds, "bar/") && !slices.Contains(change.Namespaces, "bar") {
				t.Errorf("changed are %q", change.Namespaces)
			}
		})
	}
}

func namespaceOf(name string) *Object { return read(Namespaces, `{"metadata":{"name":"`+name+`"}}`) }

// heldIn lists which Subscriptions are held: to etcd and vault, in two namespaces, in one that is not known, and in one
// that is not judged.
func heldIn(s *Snapshot) string {
	var held []string
	for _, namespace := range []string{"bar", "new", "opgate-system", "shop"} {
		for _, pkg := range []string{"etcd", "vault"} {
			sub := &olm.Subscription{Metadata: olm.ObjectMeta{Namespace: namespace, Name: pkg}}
			sub.Spec.Package, sub.Spec.InstallPlanApproval = pkg, olm.ApprovalManual
			v := rules.JudgeSubscription(rules.SubscriptionInput{New: sub, Namespace: s.Namespace(namespace)})
			if v.Decision == verdict.Hold && v.Reasons[0].Rule == bundle.RulePolicyUnreadable {
				held = append(held, namespace+"/"+pkg)
			}
		}
	}
	return strings.Join(held, " ")
}

// TestUnreadablePolicies: a Policy that cannot be read goes on suspending what it may, and no other OperatorPolicy.
func TestUnreadablePolicies(t *testing.T) {
	const template = `"policy-templates":[{"objectDefinition":{"apiVersion":"policy.open-cluster-management.io/v1beta2","kind":"OperatorPolicy","metadata":{"name":"etcd"}}}]`
	stored := []*Object{namespaceOf("shop")}
	for _, name := range []string{"etcd", "vault"} {
		op := &policyv1beta2.OperatorPolicy{}
		op.Namespace, op.Name = "policies", name
		op.Spec = policyv1beta2.OperatorPolicySpec{RemediationAction: policyv1beta2.Enforce,
			ComplianceType: policyv1beta2.MustHave, UpgradeApproval: policyv1beta2.UpgradeApprovalAutomatic,
			Subscription: policyv1beta2.SubscriptionTemplate{Name: name, Namespace: "shop"}}
		stored = append(stored, encode(OperatorPolicies, op))
	}
	for _, c := range []struct{ name, namespace, spec, want string }{
		{name: "its dependencies are a text", namespace: "policies", spec: `{"dependencies":"x",` + template + `}`,
			want: "etcd"},
		{name: "its templates are a text", namespace: "policies", spec: `{"policy-templates":"x"}`, want: "etcd vault"},
		{name: "all of it is a text", namespace: "policies", spec: `"x"`, want: "etcd vault"},
		{name: "another namespace", namespace: "elsewhere", spec: `"x"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var b Builder
			b.Put(time.Time{}, stored...)
			policy := read(Policies, `{"metadata":{"namespace":"`+c.namespace+`","name":"p"},"spec":`+c.spec+`}`)
			if policy.Policy().Object != nil {
				t.Fatal("it decodes")
			}
			suspended := func(s *Snapshot) string {
				var names []string
				for _, p := range s.Namespace("shop").Policies() {
					if p.Pending == c.namespace+"/p" && strings.Contains(p.Waits,
						"Policy "+c.namespace+"/p cannot be read") {
						names = append(names, p.Name)
					}
				}
				return strings.Join(names, " ")
			}
			s, _ := b.build(time.Time{}, []event{{now: policy}})
			if got := suspended(s); got != c.want {
				t.Errorf("suspended are %q, want %q", got, c.want)
			}
			if s, _ = b.build(time.Time{}, []event{{old: policy}}); suspended(s) != "" {
				t.Errorf("suspended are %q after it was deleted", suspended(s))
			}
		})
	}
}

// TestUnreadableConstraints: a Constraint that cannot be read protects the operators that it names, and all if these
// cannot be read either.
func TestUnreadableConstraints(t *testing.T) {
	for _, c := range []struct{ name, spec, want string }{
		{name: "its rules are a text", spec: `{"rules":"x"}`, want: ""},
		{name: "it confirms deletions", spec: `{"rules":"x","deletion":{"action":"Confirm","packages":["etcd"]}}`,
			want: "Confirm etcd"},
		{name: "it allows them", spec: `{"rules":"x","deletion":{"action":"Allow"}}`, want: ""},
		{name: "its deletion is a text", spec: `{"deletion":"Allow"}`, want: "Deny "},
		{name: "its packages are a text", spec: `{"deletion":{"action":"Confirm","packages":"etcd"}}`, want: "Deny "},
	} {
		t.Run(c.name, func(t *testing.T) {
			var b Builder
			s := b.Put(time.Time{}, read(Constraints, `{"metadata":{"name":"keep"},"spec":`+c.spec+`}`))
			d := s.Constraints().Definitions()[0]
			got := ""
			if d.Deletion != nil {
				got = string(d.Deletion.Action) + " " + strings.Join(d.Deletion.Packages, " ")
			}
			if len(d.Faults) == 0 || got != c.want {
				t.Errorf("it protects by %q with faults %v, want %q", got, d.Faults, c.want)
			}
		})
	}
}
