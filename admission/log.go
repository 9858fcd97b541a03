package admission

import (
	"slices"
	"strings"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/verdict"
)

// log writes one line: at V(0) for refusals and overrides, which must be explainable later, at V(1) for the rest.
func (e *endpoint[New, Old]) log(req *request[New, Old], v *verdict.Verdict) {
	level, message := 1, "review allowed"
	if v.Decision != verdict.Allow {
		level, message = 0, "review refused"
	}
	log := e.gate.Log.V(level)
	if !log.Enabled() {
		return
	}
	log = log.WithValues(reviewKeys(req, v)...)
	if v.Decision != verdict.Allow {
		log = log.WithValues("message", text.Truncate(v.Refusal(), maxQuoted))
	}
	log.Info(message)
}

// reviewKeys returns the keys of a log line about a review.
func reviewKeys[New, Old any](req *request[New, Old], v *verdict.Verdict) []any {
	return slices.Concat(objectKeys(v), reasonKeys(v), []any{"reviewUID", req.UID,
		"operation", req.Operation, "subresource", req.SubResource,
		"user", text.Truncate(req.User.Username, maxQuoted), "authenticated", req.authenticated,
		"decision", v.Decision.String(), "warnings", len(v.Warnings) + len(v.Changes)})
}

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
