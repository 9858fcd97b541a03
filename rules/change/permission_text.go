package change

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

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
	risky := p.group == "*" || slices.ContainsFunc(p.verbs,
		func(v string) bool { return slices.Contains(riskyVerbs, v) }) ||
		slices.Contains(p.urls, "*") || slices.Contains(p.urls, "/*") ||
		slices.ContainsFunc(p.resources, func(r string) bool { return riskyResource(p.group, r) })
	if risky {
		return Risky
	}
	return Notable
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
