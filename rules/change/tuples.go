package change

import (
	"cmp"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/opgate/opgate/internal/text"
)

// tuple is the smallest part of the rules of a webhook. One with fewer than all lists of a rule matches nothing and has
// no tuples.
type tuple struct{ operation, group, version, resource, scope string }

// maxTuples bounds the tuples of one webhook; the rules of one with more are shown as "*", which they nearly are.
const maxTuples = 20_000

// tuples returns the parts of all rules in order, each once.
func (w *webhook) tuples() []tuple {
	count := 0
	for i := range w.Rules {
		r := &w.Rules[i]
		n := 1
		for _, length := range []int{len(r.Operations), len(r.APIGroups), len(r.APIVersions), len(r.Resources)} {
			n = min(n*length, maxTuples+1)
		}
		if count += n; count > maxTuples {
			return []tuple{{operation: "*", group: "*", version: "*", resource: "*/*", scope: "*"}}
		}
	}
	all := make([]tuple, 0, count)
	for i := range w.Rules {
		all = appendTuples(all, &w.Rules[i])
	}
	slices.SortFunc(all, compareTuples)
	return slices.Compact(all)
}

func appendTuples(all []tuple, r *admissionv1.RuleWithOperations) []tuple {
	scope := "*"
	if r.Scope != nil {
		scope = string(*r.Scope)
	}
	for _, operation := range r.Operations {
		for _, group := range r.APIGroups {
			for _, version := range r.APIVersions {
				for _, resource := range r.Resources {
					all = append(all, tuple{string(operation), group, version, resource, scope})
				}
			}
		}
	}
	return all
}

func compareTuples(a, b tuple) int {
	return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.resource, b.resource),
		cmp.Compare(a.operation, b.operation),
		cmp.Compare(a.version, b.version), cmp.Compare(a.scope, b.scope))
}

// covers reports whether a webhook that matches one tuple matches another.
func (t *tuple) covers(other *tuple) bool {
	star := func(a, b string) bool { return a == "*" || a == b }
	return star(t.operation, other.operation) && star(t.group, other.group) && star(t.version, other.version) &&
		star(t.scope, other.scope) &&
		coversResource(t.resource, other.resource)
}

// coversResource reports whether a resource of a rule matches another: "*" is all resources but no subresources, "*/*"
// all of both.
func coversResource(a, b string) bool {
	if a == b || a == "*/*" {
		return true
	}
	resourceA, subA, hasSubA := strings.Cut(a, "/")
	resourceB, subB, hasSubB := strings.Cut(b, "/")
	if hasSubA != hasSubB {
		return false
	}
	return (resourceA == "*" || resourceA == resourceB) && (!hasSubA || subA == "*" || subA == subB)
}

// uncovered returns the tuples that a webhook does not match. exact is false if there are too many to compare.
func (w *webhook) uncovered(tuples []tuple) (added []tuple, exact bool) {
	owned := w.tuples()
	known := make(map[tuple]bool, len(owned))
	var wild []tuple
	for _, t := range owned {
		known[t] = true
		if strings.Contains(t.operation+t.group+t.version+t.resource+t.scope, "*") {
			wild = append(wild, t)
		}
	}
	if len(wild)*len(tuples) > 100*maxComparisons {
		return tuples, slices.Equal(owned, tuples)
	}
	for _, t := range tuples {
		if !known[t] && !slices.ContainsFunc(wild, func(o tuple) bool { return o.covers(&t) }) {
			added = append(added, t)
		}
	}
	return added, true
}

// describeTuples returns "CREATE, UPDATE of pods; CREATE of deployments (apps)", and Risky if the resources are
// Kubernetes' own.
func describeTuples(tuples []tuple) (string, Risk) {
	type target struct{ group, resource string }
	operations := map[target][]string{}
	var targets []target
	risk := Notable
	for _, t := range tuples {
		key := target{t.group, t.resource}
		if operations[key] == nil {
			targets = append(targets, key)
		}
		operations[key] = append(operations[key], t.operation)
		if builtIn(t.group) {
			risk = Risky
		}
	}
	byText := map[string][]string{}
	for _, t := range targets {
		of := text.Names(sorted(operations[t]), maxListed) + " of"
		resource := text.Name(t.resource)
		if t.group != "" {
			resource += " (" + text.Name(t.group) + ")"
		}
		byText[of] = append(byText[of], resource)
	}
	parts := make([]string, 0, len(byText))
	for _, of := range sortedKeys(byText) {
		parts = append(parts, of+" "+text.Join(byText[of], maxListed))
	}
	if len(parts) == 0 {
		return "nothing", risk
	}
	return strings.Join(parts, "; "), risk
}

// builtIn reports whether a group is one of Kubernetes itself, or all groups.
func builtIn(group string) bool {
	return group == "" || group == "*" || !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io")
}
