package change

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/component-helpers/auth/rbac/validation"

	"github.com/opgate/opgate/internal/text"
)

// permission is one line about rights: verbs on resources of one group, or on URLs.
type permission struct {
	group                   string
	verbs, resources, names []string
	urls                    []string
}

// String returns "get, list on deployments (apps)"; the group is left out if it is the core group.
func (p *permission) String() string {
	verbs := text.Names(p.verbs, maxListed)
	if len(p.urls) > 0 {
		return verbs + " on URLs " + text.Names(p.urls, maxListed)
	}
	on := verbs + " on " + text.Names(p.resources, maxListed)
	if p.group != "" {
		on += " (" + text.Name(p.group) + ")"
	}
	if len(p.names) > 0 {
		on += " named " + text.Names(p.names, maxListed)
	}
	return on
}

// riskyVerbs and riskyResources grant control of the cluster or a node. Each subresource of nodes does.
var (
	riskyVerbs     = []string{"*", "bind", "escalate", "impersonate"}
	riskyResources = map[string][]string{
		"": {"secrets", "nodes", "serviceaccounts/token", "pods/exec", "pods/attach",
			"pods/ephemeralcontainers"},
		"certificates.k8s.io":          {"certificatesigningrequests/approval", "signers"},
		"admissionregistration.k8s.io": {"mutatingwebhookconfigurations", "validatingwebhookconfigurations"},
	}
)

func (p *permission) risk() Risk {
	return riskIf(p.group == "*" ||
		slices.ContainsFunc(p.verbs, func(v string) bool { return slices.Contains(riskyVerbs, v) }) ||
		slices.Contains(p.urls, "*") || slices.Contains(p.urls, "/*") ||
		slices.ContainsFunc(p.resources, func(r string) bool { return riskyResource(p.group, r) }))
}

func riskyResource(group, resource string) bool {
	return strings.Contains(resource, "*") || slices.Contains(riskyResources[group], resource) || group == "" &&
		strings.HasPrefix(resource, "nodes/")
}

// groupRules turns rules, which may be broken into parts, into lines: the verbs on one resource are merged, then the
// resources with the same verbs. Risky resources stay on lines of their own.
func groupRules(rules []rbacv1.PolicyRule) []*permission {
	type target struct{ group, resource, names, url string }
	verbs := map[target][]string{}
	named := map[string][]string{}
	for i := range rules {
		r := &rules[i]
		names := fmt.Sprintf("%q", r.ResourceNames)
		named[names] = r.ResourceNames
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				t := target{group: group, resource: resource, names: names}
				verbs[t] = append(verbs[t], r.Verbs...)
			}
		}
		for _, url := range r.NonResourceURLs {
			verbs[target{url: url}] = append(verbs[target{url: url}], r.Verbs...)
		}
	}
	lines := map[string]*permission{}
	for t, list := range verbs {
		list = sorted(list)
		if slices.Contains(list, "*") {
			list = []string{"*"}
		}
		key := fmt.Sprintf("%q %q %q %t %t", t.group, t.names, list, t.url != "", riskyResource(t.group, t.resource))
		if lines[key] == nil {
			lines[key] = &permission{group: t.group, verbs: list, names: named[t.names]}
		}
		if t.url != "" {
			lines[key].urls = append(lines[key].urls, t.url)
		} else {
			lines[key].resources = append(lines[key].resources, t.resource)
		}
	}
	merged := slices.Collect(maps.Values(lines))
	for _, p := range merged {
		p.resources, p.urls = sorted(p.resources), sorted(p.urls)
	}
	slices.SortFunc(merged, func(a, b *permission) int { return cmp.Compare(a.String(), b.String()) })
	return merged
}

// maxComparisons bounds the comparisons of one part of a rule with one rule, each of which takes about a microsecond.
const maxComparisons = 200_000

// uncovered returns the parts of rules that no owned rule covers, as the API server decides it for escalation. exact is
// false if there are too many parts: the rest of the rules is returned whole unless it is owned literally, so that too
// much is returned and never too little.
func uncovered(owned, rules []rbacv1.PolicyRule) (added []rbacv1.PolicyRule, exact bool) {
	rules = normalRules(rules)
	if len(owned) == 0 {
		return rules, true
	}
	owned = normalRules(owned)
	literal := make(map[string]bool, len(owned))
	for i := range owned {
		literal[ruleKey(&owned[i])] = true
	}
	left := maxComparisons
	for i := range rules {
		rule := &rules[i]
		if literal[ruleKey(rule)] {
			continue
		}
		if left -= len(owned) / looksPerComparison; left >= 0 {
			candidates := slices.DeleteFunc(slices.Clone(owned),
				func(o rbacv1.PolicyRule) bool { return !mayCover(&o, rule) })
			if left -= parts(rule) * max(1, len(candidates)); left >= 0 {
				_, atoms := validation.Covers(candidates, []rbacv1.PolicyRule{*rule})
				added = append(added, atoms...)
				continue
			}
		}
		left = -1
		added = append(added, *rule)
	}
	return added, left >= 0
}

// looksPerComparison is how many rules mayCover looks at in the time of one comparison.
const looksPerComparison = 20

// mayCover reports whether a rule covers a part of another, as far as groups and resources decide that.
func mayCover(owned, rule *rbacv1.PolicyRule) bool {
	if len(owned.NonResourceURLs) > 0 && len(rule.NonResourceURLs) > 0 {
		return true
	}
	return slices.ContainsFunc(owned.APIGroups, func(group string) bool {
		return group == "*" || slices.Contains(rule.APIGroups, group)
	}) && slices.ContainsFunc(owned.Resources, func(resource string) bool {
		return resource == "*" || strings.HasPrefix(resource, "*/") || slices.Contains(rule.Resources, resource)
	})
}

// maxParts is more than any count of parts that is compared, small enough to multiply.
const maxParts = maxComparisons + 1

// parts returns how many parts Covers breaks a rule into, at most maxParts.
func parts(r *rbacv1.PolicyRule) int {
	n := 1
	for _, list := range [][]string{r.APIGroups, r.Resources, r.Verbs} {
		n = min(n*len(list), maxParts)
	}
	n = min(n*max(1, len(r.ResourceNames)), maxParts)
	return min(n+min(len(r.NonResourceURLs)*len(r.Verbs), maxParts), maxParts)
}

// normalRules returns rules with sorted lists, in one order, each once.
func normalRules(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	keyed := make(map[string]rbacv1.PolicyRule, len(rules))
	keys := make([]string, 0, len(rules))
	for i := range rules {
		r := rbacv1.PolicyRule{
			APIGroups: sorted(rules[i].APIGroups), Resources: sorted(rules[i].Resources), Verbs: sorted(rules[i].Verbs),
			ResourceNames: sorted(rules[i].ResourceNames), NonResourceURLs: sorted(rules[i].NonResourceURLs),
		}
		key := ruleKey(&r)
		if _, known := keyed[key]; !known {
			keyed[key] = r
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	normal := make([]rbacv1.PolicyRule, len(keys))
	for i, key := range keys {
		normal[i] = keyed[key]
	}
	return normal
}

// ruleKey is equal for two rules with the same sorted lists only.
func ruleKey(r *rbacv1.PolicyRule) string {
	key := make([]byte, 0, 128)
	for _, list := range [][]string{r.APIGroups, r.Resources, r.Verbs, r.ResourceNames, r.NonResourceURLs} {
		for _, name := range list {
			key = strconv.AppendQuote(key, name)
		}
		key = append(key, ';')
	}
	return string(key)
}

// rulesKey is equal for two lists of rules with the same rules only, in any order.
func rulesKey(rules []rbacv1.PolicyRule) string {
	var key strings.Builder
	for _, r := range normalRules(rules) {
		key.WriteString(ruleKey(&r))
		key.WriteByte('\n')
	}
	return key.String()
}
