package backstop_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/fair"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/backstop"
	"github.com/opgate/opgate/rules/operatorpolicy"
)

// owned is policy in another namespace, and with an age in seconds.
func owned(owner, name, namespace, pkg string, age int, edit func(*spec)) *operatorpolicy.Policy {
	op := &policyv1beta2.OperatorPolicy{}
	op.Namespace, op.Name = owner, name
	op.CreationTimestamp = metav1.NewTime(time.Unix(1_000_000-int64(age), 0))
	op.Spec = spec{RemediationAction: policyv1beta2.Enforce, ComplianceType: policyv1beta2.MustHave,
		UpgradeApproval: policyv1beta2.UpgradeApprovalAutomatic,
		Subscription:    policyv1beta2.SubscriptionTemplate{Name: pkg, Namespace: namespace}}
	edit(&op.Spec)
	return rules.NewOperatorPolicy(op)
}

// wantHeld wants the API server to refuse a version of etcd that no policy allows, and to store the objects.
func wantHeld(t *testing.T, o *parts, namespaces ...string) {
	t.Helper()
	for kind, object := range map[string]any{"ValidatingAdmissionPolicy": o.Validating,
		"MutatingAdmissionPolicy": o.Mutating} {
		raw, err := json.Marshal(object)
		if err != nil || len(raw) > 5<<18 {
			t.Errorf("the %s has %d bytes, and the API server stores 1.5 MiB: %v", kind, len(raw), err)
		}
	}
	s := newAPIServer(t, o)
	for _, namespace := range namespaces {
		got := s.judge(t, approval(namespace, "etcdoperator.v0.9.4"))
		if len(got.failed) > 0 || len(got.refused) != 1 ||
			!strings.Contains(got.refused[0], "by OperatorPolicy policies/") {
			t.Errorf("a forbidden version in %s: %.1000v, want a refusal in the name of policies", namespace, got)
		}
	}
}

// TestD3FloodOfPolicies: 200 policies of another namespace, which come first by name and package and are as old as they
// claim, do not push out the rules of an administrator for the namespace that they name.
func TestD3FloodOfPolicies(t *testing.T) {
	var policies []*operatorpolicy.Policy
	for i := range 200 {
		name := fmt.Sprintf("a%03d", i)
		policies = append(policies, owned("attacker", name, "victim", name, 1000-i, versions(name+".v1")))
	}
	for i := range 20 { // an equal share is 100
		name := fmt.Sprintf("etcd-%02d", i)
		policies = append(policies, owned("policies", name, "victim", "etcd", 20-i,
			versions("etcdoperator.v0.9.2", name)))
	}
	o := compile(backstop.Input{Features: everything, Policies: policies})
	if len(o.Left) != 20 || o.Left[0].String() != "attacker/a180" || o.Left[19].String() != "attacker/a199" {
		t.Errorf("%d policies are left to the webhooks, want the newest 20 of namespace attacker: %v", len(o.Left),
			o.Left)
	}
	wantHeld(t, o, "victim")

	t.Run("one more changes nothing for others", func(t *testing.T) {
		more := append(slices.Clone(policies), owned("attacker", "a0000", "victim", "a0000", 0, versions("x")),
			owned("policies", "a-new", "other", "etcd", 0, versions("etcdoperator.v0.9.2")))
		slices.Reverse(more)
		left := names(compile(backstop.Input{Features: everything, Policies: more}).Left)
		if want := append([]string{"attacker/a0000"}, names(o.Left)...); !slices.Equal(left, want) {
			t.Errorf("left are %v, want those of before and the new one", left)
		}
	})
	t.Run("one that takes all that one evaluation may cost", func(t *testing.T) {
		large := slices.Clone(policies[200:])
		for i := range 20 {
			names := versions(append(long(200), fmt.Sprint(i))...)
			large = append(large, owned("attacker", fmt.Sprintf("a%03d", i), "victim", "a", 1000, names))
		}
		o := compile(backstop.Input{Features: everything, Policies: large})
		if len(o.Left) == 0 || slices.ContainsFunc(names(o.Left),
			func(l string) bool { return !strings.HasPrefix(l, "attacker/") }) {
			t.Errorf("left are %v, want some of namespace attacker only", o.Left)
		}
		wantHeld(t, o, "victim")
	})
}

// TestD3LargePolicies: 26 policies with 1,290 names each, for other namespaces, neither keep new rules from coming into
// force nor push out any of other authors.
func TestD3LargePolicies(t *testing.T) {
	policies := []*operatorpolicy.Policy{owned("policies", "etcd", "shop", "etcd", 0, versions("etcdoperator.v0.9.2"))}
	for i := range 26 {
		names := make([]string, 1290)
		for n := range names {
			names[n] = fmt.Sprintf("etcdoperator.v0.9.%04d-%02d-%s", n, i, strings.Repeat("x", 20))
		}
		name, namespace := fmt.Sprintf("large-%02d", i), fmt.Sprintf("any-%02d", i)
		policies = append(policies, owned("attacker", name, namespace, "etcd", 1000-i, versions(strings.Join(names, ","))))
	}
	o := compile(backstop.Input{Features: everything, Policies: policies})
	if len(o.Left) == 0 || len(o.Left) == 26 || o.Left[0].String() != fmt.Sprintf("attacker/large-%02d", 26-len(o.Left)) {
		t.Errorf("%d policies are left to the webhooks, want the newest of namespace attacker: %v", len(o.Left), o.Left)
	}
	wantHeld(t, o, "shop")
}

// TestObjectsAreBounded: whatever policies and OperatorGroups say, the objects are stored.
func TestObjectsAreBounded(t *testing.T) {
	name := func(kind string, i int) string { return fmt.Sprintf("%s-%05d-%s", kind, i, strings.Repeat("x", 240)) }
	namespace := func(i int) string { return fmt.Sprintf("n%05d-%s", i, strings.Repeat("x", 50)) }
	for title, c := range map[string]struct {
		policies int
		of       func(i int) *operatorpolicy.Policy
	}{
		"long names": {2_000, func(i int) *operatorpolicy.Policy {
			return policy(name("p", i), namespace(i), name("k", i), versions(name("v", i)))
		}},
		"many namespaces": {12_000, func(i int) *operatorpolicy.Policy {
			return policy("p", namespace(i), "k", versions("v"))
		}},
		"hostile text": {2_000, func(i int) *operatorpolicy.Policy {
			return policy(fmt.Sprint(i), namespace(i), "k", versions(fmt.Sprint(i, strings.Repeat(`<'\"&>`, 40))))
		}},
		"ranges": {8_000, func(i int) *operatorpolicy.Policy {
			return policy("p", namespace(i), "k", func(s *spec) { s.VersionRange = fmt.Sprintf(">=1.0.%d <2.0.0", i) })
		}},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			in := backstop.Input{Features: everything, Accounts: map[string][]string{}}
			for i := range c.policies {
				in.Policies = append(in.Policies, c.of(i))
				if i < 2_000 {
					in.Accounts[namespace(i)] = []string{name("a", i), name("b", i), name("c", i), name("d", i),
						name("e", i)}
				}
			}
			o := compile(in)
			if len(o.Left) == 0 {
				t.Error("all fits, so nothing is tested")
			}
			wantHeld(t, o)
		})
	}
}

// TestEverywhereIsBounded: policies whose namespace cannot be read are held by the API server itself, twenty of them,
// and do not make the objects larger than what is stored.
func TestEverywhereIsBounded(t *testing.T) {
	in := backstop.Input{Features: everything, Accounts: map[string][]string{}}
	for i := range 5_000 {
		in.Accounts[fmt.Sprintf("n%05d", i)] = []string{strings.Repeat("a", 200), "b"}
	}
	for i := range 21 {
		p := operatorpolicy.Unreadable("policies", fmt.Sprintf("p%02d", i), &spec{}, errors.New("decode"))
		in.Policies = append(in.Policies, p, p) // as it is in each of two namespaces
	}
	o := compile(in)
	if !slices.Equal(names(o.Left), []string{"policies/p20"}) {
		t.Errorf("left to the webhooks are %v", o.Left)
	}
	wantHeld(t, o, "shop", "any")
}

// names returns what falls out, as messages name it.
func names(left []fair.Origin) (names []string) {
	for _, o := range left {
		names = append(names, o.String())
	}
	return names
}
