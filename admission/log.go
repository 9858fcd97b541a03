package admission

import (
	"strings"

	"github.com/opgate/opgate/rules/verdict"
)

// objectKeys returns the keys of a log line about the object of a verdict: kind, namespace and name. The kind is in
// lower case, the namespace is empty for objects without one. docs/metrics.md lists the keys of all lines.
func objectKeys(v *verdict.Verdict) []any {
	kind, name, _ := strings.Cut(v.Object, " ")
	namespace, below, namespaced := strings.Cut(name, "/")
	if !namespaced {
		namespace, below = "", name
	}
	return []any{"kind", kind, "namespace", namespace, "name", below}
}

// reasonKeys returns the keys of a log line about the reasons of a refusal: the rules, and the policies and
// Constraints, each once, in the order of the reasons.
func reasonKeys(v *verdict.Verdict) []any {
	rules, policies := []string{}, []string{}
	seen := map[string]bool{}
	add := func(to *[]string, text string) {
		if text != "" && !seen[text] {
			seen[text] = true
			*to = append(*to, text)
		}
	}
	for _, r := range v.Reasons {
		add(&rules, string(r.Rule))
		add(&policies, r.Source)
	}
	return []any{"rules", rules, "policies", policies}
}
