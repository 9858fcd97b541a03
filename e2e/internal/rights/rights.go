// Package rights compares the requests that Opgate made with the RBAC rules that it has: every request needs one, and
// every rule that ships is used by a test.
package rights

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/opgate/opgate/e2e/cluster"
)

// Right is a verb on a resource, or on a subresource of it.
type Right struct {
	Verb     string `json:"verb"`
	Group    string `json:"group"`
	Resource string `json:"resource"`
}

// For returns the right that a request needs.
func For(r cluster.Request) Right {
	resource := r.Object.Resource
	if r.Object.Subresource != "" {
		resource += "/" + r.Object.Subresource
	}
	return Right{Verb: r.Verb, Group: r.Object.Group, Resource: resource}
}

// of expands rules.
func of(rules ...rbacv1.PolicyRule) []Right {
	var all []Right
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					all = append(all, Right{Verb: verb, Group: group, Resource: resource})
				}
			}
		}
	}
	return all
}

// read is the one right of get, list and watch: the library decides which of them is used.
func (r Right) read() Right {
	if slices.Contains([]string{"get", "list", "watch"}, r.Verb) {
		r.Verb = "read"
	}
	return r
}

// Unused returns the rights of the rules that no used one needs.
func Unused(used []Right, rules ...rbacv1.PolicyRule) []Right {
	seen := map[Right]bool{}
	for _, r := range used {
		seen[r.read()] = true
	}
	var unused []Right
	for _, r := range of(rules...) {
		if r = r.read(); !seen[r] && !slices.Contains(unused, r) {
			unused = append(unused, r)
		}
	}
	return unused
}

// OfCertificates are the rights that only self-managed certificates need. TestInstall of e2e/install, which is not one
// of the tests that UnusedShipped is for, fails unless it uses all of them.
var OfCertificates = []Right{
	{Verb: "patch", Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"},
	{Verb: "update", Resource: "secrets"},
}

// UnusedShipped returns the rights that Opgate is shipped with and that no used one needs.
func UnusedShipped(used []Right) ([]Right, error) {
	var all []rbacv1.PolicyRule
	for _, shipped := range []func() ([]rbacv1.PolicyRule,
		error){cluster.AdmissionRules, cluster.ContentsRules, cluster.CertsRules, cluster.LoopRules,
		cluster.BackstopRules, cluster.RightsRules} {
		rules, err := shipped()
		if err != nil {
			return nil, err
		}
		all = append(all, rules...)
	}
	finalizers := Right{Verb: "update", Group: "policy.open-cluster-management.io", Resource: "policies/finalizers"}
	return slices.DeleteFunc(Unused(used, all...), func(r Right) bool {
		// Admission plugin OwnerReferencesPermissionEnforcement checks these: see TestInstall for the first.
		return r.Verb == "delete" && strings.HasSuffix(r.Resource, "webhookconfigurations") || r == finalizers ||
			slices.Contains(OfCertificates, r)
	}), nil
}

// Excess returns an error for every request that the rules do not allow. Groups are exempt: tests grant them.
func Excess(requests []cluster.Request, groups []string, rules ...rbacv1.PolicyRule) error {
	var errs []error
	for _, r := range requests {
		switch {
		case r.Verb == "get" && r.Object.Resource == "" &&
			(strings.HasPrefix(r.URI, "/api") || strings.HasPrefix(r.URI, "/version")):
			continue // discovery, which every user may do
		case r.Verb == "create" && (r.Object.Resource == "selfsubjectreviews" || r.Object.Resource == "selfsubjectaccessreviews"):
			continue // every user may create these; a test asks with kubectl what Opgate may do
		case r.Response.Code == http.StatusForbidden && r.Object.Resource == "secrets":
			continue // a template in a script requests one, to be refused
		case slices.Contains(groups, r.Object.Group):
			continue
		}
		allowed := slices.ContainsFunc(rules, func(rule rbacv1.PolicyRule) bool {
			named := len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, r.Object.Name)
			return named && slices.Contains(of(rule), For(r))
		})
		if !allowed {
			errs = append(errs, fmt.Errorf("opgate did %s %s, which it does not need", r.Verb, r.URI))
		}
	}
	return errors.Join(errs...)
}
