package change

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
)

// holder is who has rights, and where. Without a subject it is the operator itself: its ServiceAccounts. role is set
// if it is whoever is bound to a role of the bundle, by a binding of the bundle or by another one: OLM overwrites an
// existing role of the name.
type holder struct {
	wide    bool
	subject string
	role    bool
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

// clusterWide returns the same holder in all namespaces.
func (h holder) clusterWide() holder {
	h.wide = true
	return h
}

// rights are all rights that a bundle grants.
type rights struct {
	// rules are those of the ClusterServiceVersion, and of the roles in the bundle that are bound in the bundle.
	rules map[holder][]rbacv1.PolicyRule
	// roles are the roles outside the bundle that are bound in it, whose rules are not known, and those that a role of
	// it aggregates.
	roles map[holder][]string
	// runsAs are the ServiceAccounts of its pods, granted those that the ClusterServiceVersion grants rights to, and
	// tokens what it reads of the tokens of ServiceAccounts, as texts.
	runsAs, granted, tokens []string
}

// rbacObject is a role or a binding of a bundle.
type rbacObject struct {
	Metadata struct {
		Labels map[string]string `json:"labels"`
	} `json:"metadata"`
	Rules           []rbacv1.PolicyRule     `json:"rules"`
	AggregationRule *rbacv1.AggregationRule `json:"aggregationRule"`
	RoleRef         rbacv1.RoleRef          `json:"roleRef"`
	Subjects        []rbacv1.Subject        `json:"subjects"`
}

// isRBAC reports whether an object is a role or a binding.
func (h *header) isRBAC() bool { return olm.IsGrant(h.Kind) && h.group() == rbacv1.GroupName }

// readRights reads the rights that a bundle grants.
func (c *Contents) readRights() (*rights, error) {
	r := &rights{rules: map[holder][]rbacv1.PolicyRule{}, roles: map[holder][]string{}}
	for _, p := range c.spec.InstallStrategy.StrategySpec.ClusterPermissions {
		r.rules[holder{wide: true}] = append(r.rules[holder{wide: true}], p.Rules...)
		r.granted = append(r.granted, p.ServiceAccountName)
	}
	for _, p := range c.spec.InstallStrategy.StrategySpec.Permissions {
		r.rules[holder{}] = append(r.rules[holder{}], p.Rules...)
		r.granted = append(r.granted, p.ServiceAccountName)
	}
	for i := range c.pods {
		r.runsAs = append(r.runsAs, accountsOf(&c.pods[i].Spec)...)
	}
	r.granted, r.runsAs = sorted(r.granted), sorted(r.runsAs)
	derived := c.derivedRules()
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
		if !strings.HasSuffix(o.Kind, "Binding") && !derived.has(o) {
			r.addRole(o, into)
		}
	}
	for i := range c.objects {
		if o := &c.objects[i]; o.isRBAC() && strings.HasSuffix(o.Kind, "Binding") {
			r.addBinding(c, o, objects)
		}
	}
	return r, c.readTokens(r)
}

// readTokens reads the Secrets of a bundle for which Kubernetes makes tokens of ServiceAccounts.
func (c *Contents) readTokens(r *rights) error {
	for i := range c.objects {
		o := &c.objects[i]
		if !o.is("", "Secret") {
			continue
		}
		var secret corev1.Secret
		if err := json.Unmarshal(o.raw, &secret); err != nil {
			return fmt.Errorf("%s cannot be read: %w", o, err)
		}
		if secret.Type == corev1.SecretTypeServiceAccountToken {
			r.tokens = append(r.tokens, fmt.Sprintf("token of ServiceAccount %s in %s",
				text.Name(secret.Annotations[corev1.ServiceAccountNameKey]), o))
		}
	}
	return nil
}

// addRole adds the rules of a role for whoever is bound to it, and for the users of the roles that aggregate it.
func (r *rights) addRole(o *object, role *rbacObject) {
	h := holder{wide: o.Kind == "ClusterRole", role: true, subject: "holders of " + o.String()}
	r.rules[h] = append(r.rules[h], role.Rules...)
	if o.Kind != "ClusterRole" {
		return
	}
	if role.AggregationRule != nil {
		r.roles[h] = append(r.roles[h], "the ClusterRoles that it aggregates: "+
			shownJSON(role.AggregationRule.ClusterRoleSelectors))
	}
	for label, value := range role.Metadata.Labels {
		to, isDefault := strings.CutPrefix(label, metakey.AggregatePrefix)
		switch {
		case isDefault && value == "true":
			to = "holders of ClusterRole " + text.Name(to)
		case slices.Contains(ownerLabels, label) || strings.HasPrefix(label, "app.kubernetes.io/"):
			continue
		default:
			to = "holders of ClusterRoles that aggregate " + text.Name(label+"="+value)
		}
		h := holder{wide: true, subject: to}
		r.rules[h] = append(r.rules[h], role.Rules...)
	}
}

// addBinding adds the rules of the role that a binding refers to.
func (r *rights) addBinding(c *Contents, o *object, objects map[string]*rbacObject) {
	binding := objects[o.Kind+"/"+o.Metadata.Name]
	role := objects[binding.RoleRef.Kind+"/"+binding.RoleRef.Name]
	for _, subject := range r.subjects(c.namespace, binding.Subjects) {
		h := holder{wide: o.Kind == "ClusterRoleBinding", subject: subject}
		if role == nil || role.AggregationRule != nil {
			r.roles[h] = append(r.roles[h], text.Name(binding.RoleRef.Kind)+" "+text.Name(binding.RoleRef.Name))
		}
		if role != nil {
			r.rules[h] = append(r.rules[h], role.Rules...)
		}
	}
}

// subjects returns the subjects of a binding, with "" for the operator's own ServiceAccounts: those that its pods run
// as, or that the ClusterServiceVersion grants rights to, in the namespace that it is installed in. Without a
// namespace it is not known which that is.
func (r *rights) subjects(namespace string, list []rbacv1.Subject) []string {
	names := make([]string, 0, len(list))
	for _, s := range list {
		own := slices.Contains(r.runsAs, s.Name) || slices.Contains(r.granted, s.Name)
		switch {
		case s.Kind != rbacv1.ServiceAccountKind:
			names = append(names, text.Name(s.Kind)+" "+text.Name(s.Name))
		case own && (s.Namespace == namespace || s.Namespace == "" || namespace == ""):
			names = append(names, "")
		default:
			names = append(names, "ServiceAccount "+text.Name(strings.TrimPrefix(s.Namespace+"/"+s.Name, "/")))
		}
	}
	return sorted(names)
}

// checkParts reports an error if the rights are too many to be shown.
func (r *rights) checkParts() error {
	left := maxComparisons
	for _, rules := range r.rules {
		for i := range rules {
			if left -= parts(&rules[i]); left < 0 {
				return fmt.Errorf("its rules have more than the %d combinations of verb and resource that are compared",
					maxComparisons)
			}
		}
	}
	return nil
}

// holders returns all holders in one order.
func (r *rights) holders() []holder {
	all := sets.KeySet(r.rules).Union(sets.KeySet(r.roles))
	key := func(h holder) string { return fmt.Sprintf("%t %s", h.role, h) } // false is before true
	return slices.SortedFunc(maps.Keys(all), func(a, b holder) int { return cmp.Compare(key(a), key(b)) })
}

// covering returns what a holder has already: what it has cluster-wide it has in every namespace.
func covering[T any](all map[holder][]T, h holder) []T {
	if h.wide {
		return all[h]
	}
	return slices.Concat(all[h.clusterWide()], all[h])
}

// comparePermissions adds the rights of `to` that `from` does not cover. What it has added once it does not repeat
// for whoever is bound to the role that has the rule.
func (s *Set) comparePermissions(from, to *rights) {
	s.compareAccounts(from, to)
	var shown []rbacv1.PolicyRule
	for _, h := range to.holders() {
		bound := covering(from.roles, h)
		for _, role := range sorted(to.roles[h]) {
			if !slices.Contains(bound, role) {
				s.add(Permissions, Risky, "%s: binds %s", h, role)
			}
		}
		owned := covering(from.rules, h)
		if !h.wide { // what it has cluster-wide now is shown there
			owned = slices.Concat(owned, to.rules[h.clusterWide()])
		}
		if h.role {
			owned = slices.Concat(owned, shown)
		}
		added, exact := uncovered(owned, to.rules[h])
		shown = append(shown, added...)
		if !exact {
			s.note("permissions, %s: there are too many rules to compare their parts, so rules are shown whole", h)
		}
		for _, p := range groupRules(added) {
			s.add(Permissions, p.risk(), "%s: %s", h, p)
		}
	}
	if hasAll(from.rules[holder{wide: true}]) {
		s.note("%s has all rights already (* on * in every group, cluster-wide), so new permissions of the operator are not shown", text.Name(s.From))
	}
}

// compareAccounts adds the ServiceAccounts that pods run as, get rights, or leave tokens of, unlike before. The
// rights of an account that others have made are not known, so that a new one is a difference whatever rights the
// bundle grants it.
func (s *Set) compareAccounts(from, to *rights) {
	before := func(accounts []string) string {
		if len(accounts) == 0 {
			return ""
		}
		return ", before " + text.Names(accounts, maxListed)
	}
	for _, account := range to.runsAs {
		if slices.Contains(from.runsAs, account) {
			continue
		}
		risk := riskIf(s.From != "" || !slices.Contains(to.granted, account))
		s.add(Permissions, risk, "runs as ServiceAccount %s%s", text.Name(account), before(from.runsAs))
	}
	for _, account := range to.granted {
		if !slices.Contains(from.granted, account) && (s.From != "" || !slices.Contains(to.runsAs, account)) {
			s.add(Permissions, Risky, "grants rights to ServiceAccount %s%s", text.Name(account), before(from.granted))
		}
	}
	for _, token := range to.tokens {
		if !slices.Contains(from.tokens, token) {
			s.add(Permissions, Risky, "%s", token)
		}
	}
}

// hasAll reports whether rules allow everything on every resource.
func hasAll(rules []rbacv1.PolicyRule) bool {
	return slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
		return slices.Contains(r.APIGroups, "*") && slices.Contains(r.Resources, "*") &&
			slices.Contains(r.Verbs, "*") && len(r.ResourceNames) == 0
	})
}

// sorted returns the values in order, each once.
func sorted(list []string) []string {
	list = slices.Sorted(slices.Values(list))
	return slices.Compact(list)
}

// sortedKeys returns the keys of a map in order.
func sortedKeys[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }
