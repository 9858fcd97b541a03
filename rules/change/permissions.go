package change

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/opgate/opgate/internal/text"
)

// holder is who has rights, and where. Without a subject it is the operator itself: its ServiceAccounts.
type holder struct {
	wide    bool
	subject string
}

// String begins the text of a Difference.
func (h holder) String() string {
	where := "in its namespaces"
	if h.wide {
		where = "cluster-wide"
	}
	if h.subject != "" {
		where += ", for " + h.subject
	}
	return where
}

// rights are all rights that a bundle grants.
type rights struct {
	// rules are those of the ClusterServiceVersion, and of the roles in the bundle that are bound in the bundle.
	rules map[holder][]rbacv1.PolicyRule
	// roles are the roles outside the bundle that are bound in it, whose rules are not known.
	roles map[holder][]string
}

// rbacObject is a role or a binding of a bundle.
type rbacObject struct {
	Rules           []rbacv1.PolicyRule     `json:"rules"`
	AggregationRule *rbacv1.AggregationRule `json:"aggregationRule"`
	RoleRef         rbacv1.RoleRef          `json:"roleRef"`
	Subjects        []rbacv1.Subject        `json:"subjects"`
}

// isRBAC reports whether an object is a role or a binding.
func (h *header) isRBAC() bool {
	switch h.Kind {
	case "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding":
		return h.group() == rbacv1.GroupName
	}
	return false
}

// readRights reads the rights that a bundle grants.
func (c *Contents) readRights() (*rights, error) {
	r := &rights{rules: map[holder][]rbacv1.PolicyRule{}, roles: map[holder][]string{}}
	for _, p := range c.spec.InstallStrategy.StrategySpec.ClusterPermissions {
		r.rules[holder{wide: true}] = append(r.rules[holder{wide: true}], p.Rules...)
	}
	for _, p := range c.spec.InstallStrategy.StrategySpec.Permissions {
		r.rules[holder{}] = append(r.rules[holder{}], p.Rules...)
	}
	objects := map[string]*rbacObject{}
	for i := range c.objects {
		o := &c.objects[i]
		if !o.isRBAC() {
			continue
		}
		into := &rbacObject{}
		if err := json.Unmarshal(o.raw, into); err != nil {
			return nil, fmt.Errorf("%s cannot be read: %w", o, err)
		}
		objects[o.Kind+"/"+o.Metadata.Name] = into
		if o.Kind == "ClusterRole" {
			r.addAggregated(o, into)
		}
	}
	for i := range c.objects {
		if o := &c.objects[i]; o.isRBAC() && strings.HasSuffix(o.Kind, "Binding") {
			r.addBinding(o, objects)
		}
	}
	return r, nil
}

// aggregationLabel begins the labels that add the rules of a ClusterRole to one of the default user-facing ones.
const aggregationLabel = "rbac.authorization.k8s.io/aggregate-to-"

// addAggregated adds the rules that users of the cluster get by a default role.
func (r *rights) addAggregated(o *object, role *rbacObject) {
	for label, value := range o.Metadata.Labels {
		if to, ok := strings.CutPrefix(label, aggregationLabel); ok && value == "true" {
			h := holder{wide: true, subject: "holders of ClusterRole " + text.Name(to)}
			r.rules[h] = append(r.rules[h], role.Rules...)
		}
	}
}

// addBinding adds the rules of the role that a binding refers to.
func (r *rights) addBinding(o *object, objects map[string]*rbacObject) {
	binding := objects[o.Kind+"/"+o.Metadata.Name]
	role := objects[binding.RoleRef.Kind+"/"+binding.RoleRef.Name]
	for _, subject := range subjects(binding.Subjects) {
		h := holder{wide: o.Kind == "ClusterRoleBinding", subject: subject}
		if role == nil || role.AggregationRule != nil {
			r.roles[h] = append(r.roles[h], text.Name(binding.RoleRef.Kind)+" "+text.Name(binding.RoleRef.Name))
		}
		if role != nil {
			r.rules[h] = append(r.rules[h], role.Rules...)
		}
	}
}

// subjects returns the subjects of a binding, with "" for ServiceAccounts: their namespaces differ between clusters.
func subjects(list []rbacv1.Subject) []string {
	names := make([]string, 0, len(list))
	for _, s := range list {
		if s.Kind == rbacv1.ServiceAccountKind {
			names = append(names, "")
		} else {
			names = append(names, text.Name(s.Kind)+" "+text.Name(s.Name))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// checkParts reports an error if the rights are too many to be shown.
func (r *rights) checkParts() error {
	left := maxComparisons
	for _, rules := range r.rules {
		for i := range rules {
			if left -= parts(&rules[i]); left < 0 {
				return fmt.Errorf("its rules have more than the %d combinations of verb and resource that are compared", maxComparisons)
			}
		}
	}
	return nil
}

// holders returns all holders in one order.
func (r *rights) holders() []holder {
	all := map[holder]bool{}
	for h := range r.rules {
		all[h] = true
	}
	for h := range r.roles {
		all[h] = true
	}
	return slices.SortedFunc(maps.Keys(all), func(a, b holder) int {
		return cmp.Or(cmp.Compare(a.String(), b.String()))
	})
}

// covering returns the rules that a holder has already: cluster-wide ones apply in every namespace.
func (r *rights) covering(h holder) []rbacv1.PolicyRule {
	wide := r.rules[holder{wide: true, subject: h.subject}]
	if h.wide {
		return wide
	}
	return slices.Concat(wide, r.rules[h])
}

// comparePermissions adds the rights of `to` that `from` does not cover.
func (s *Set) comparePermissions(from, to *rights) {
	for _, h := range to.holders() {
		bound := from.roles[h]
		if !h.wide {
			bound = slices.Concat(bound, from.roles[holder{wide: true, subject: h.subject}])
		}
		for _, role := range sorted(to.roles[h]) {
			if !slices.Contains(bound, role) {
				s.add(Permissions, Risky, "%s: binds %s", h, role)
			}
		}
		owned := from.covering(h)
		if !h.wide { // what it has cluster-wide now is shown there
			owned = slices.Concat(owned, to.rules[holder{wide: true, subject: h.subject}])
		}
		added, exact := uncovered(owned, to.rules[h])
		if !exact {
			s.note("permissions, %s: there are too many rules to compare their parts, so rules are shown whole", h)
		}
		for _, p := range groupRules(added) {
			s.add(Permissions, p.risk(), "%s: %s", h, p)
		}
	}
	if hasAll(from.rules[holder{wide: true}]) {
		s.note("%s has all rights already (* on * in every group, cluster-wide), so new permissions of the operator never show", text.Name(s.From))
	}
}

// hasAll reports whether rules allow everything on every resource.
func hasAll(rules []rbacv1.PolicyRule) bool {
	return slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
		return slices.Contains(r.APIGroups, "*") && slices.Contains(r.Resources, "*") && slices.Contains(r.Verbs, "*") && len(r.ResourceNames) == 0
	})
}

// sorted returns the values in order, each once.
func sorted(list []string) []string {
	list = slices.Sorted(slices.Values(list))
	return slices.Compact(list)
}

// sortedKeys returns the keys of a map in order.
func sortedKeys[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }
