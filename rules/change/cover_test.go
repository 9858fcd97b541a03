package change

import (
	"math/rand/v2"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/component-helpers/auth/rbac/validation"

	"github.com/opgate/opgate/internal/cases"
)

// TestUncovered compares with Covers on all rules: leaving out equal rules and those of other resources must not change
// the result.
func TestUncovered(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	some := func(from ...string) []string {
		var list []string
		for range random.IntN(3) {
			list = append(list, from[random.IntN(len(from))])
		}
		return list
	}
	rules := func() []rbacv1.PolicyRule {
		list := make([]rbacv1.PolicyRule, random.IntN(5))
		for i := range list {
			list[i].Verbs = some("get", "list", "*")
			if random.IntN(4) == 0 { // the API server accepts no rule with both
				list[i].NonResourceURLs = some("/healthz", "/health*", "*")
				continue
			}
			list[i].APIGroups = some("", "apps", "*")
			list[i].Resources = some("pods", "pods/log", "*/log", "*", "secrets", "")
			list[i].ResourceNames = some("a", "b")
		}
		return list
	}
	for range cases.Of(20_000) {
		owned, wanted := rules(), rules()
		added, exact := uncovered(owned, wanted)
		covered, missing := validation.Covers(owned, wanted)
		if !exact || rulesKey(parted(added)) != rulesKey(missing) || covered != (len(parted(added)) == 0) {
			t.Fatalf("%v lack of %v: %v, %t, want %v", owned, wanted, added, exact, missing)
		}
	}
}

// parted breaks rules into parts.
func parted(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	var parts []rbacv1.PolicyRule
	for _, r := range rules {
		parts = append(parts, validation.BreakdownRule(r)...)
	}
	return parts
}
