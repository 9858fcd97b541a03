package constraint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/operator-framework/api/pkg/constraints"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
)

// whyNotCompiled is of a bundle's own rule that Prepare has not seen, or that was pushed out since.
const whyNotCompiled = "it is not compiled yet; try again in a moment"

var errNotCompiled = errors.New(whyNotCompiled)

// ownRule is a bundle's own constraint made ready, or why that is not possible.
type ownRule struct {
	check *check
	err   error
}

// Own judges the olm.constraint properties of one bundle, and gives a finding for each that no candidate satisfies.
//
// The meaning is OLM's. Its resolver looks for bundles that match a constraint among all it knows, which include the bundle
// itself and the ClusterServiceVersions of the namespace (getBundleVariables and addInvariants in operator-lifecycle-manager
// pkg/controller/registry/resolver/resolver.go: the predicate is applied to namespacedCache.Find, from which the bundle
// is not taken out, and a dependency of a bundle on itself is satisfied by installing it). One candidate must match the
// whole of a compound (cache.And, Or and Not are applied to one entry). So the candidates here are the bundle itself,
// those given, and the cluster with its properties. A rule that fails on a candidate does not match it.
//
// Rules see the variables of cluster constraints, of the candidate. They are not compiled here.
func (s *Set) Own(b *Bundle, candidates []*Bundle, ns Namespace, budget *Budget) []Finding {
	if !BringsOwn(b.Properties) {
		return nil
	}
	var rules []olm.Property
	for _, p := range b.Properties {
		if p.Type == olm.TypeConstraint {
			rules = append(rules, p)
		}
	}
	if b.Unknown&Properties != 0 {
		return nil
	}
	if len(rules) > maxConstraints {
		return []Finding{{Outcome: Failed, Why: fmt.Sprintf("the bundle has %d constraints of its own, at most %d are judged", len(rules), maxConstraints)}}
	}
	if budget == nil {
		budget = NewBudget(nil)
	}
	around := s.surroundings().in(ns)
	subjects := make([]*subject, 0, len(candidates)+2)
	seen := map[*Bundle]bool{}
	for _, candidate := range append([]*Bundle{b, {Properties: s.Cluster().Properties, Unknown: s.clusterUnknown()}}, candidates...) {
		if candidate != nil && !seen[candidate] {
			seen[candidate] = true
			subjects = append(subjects, &subject{bundle: candidate, around: &around, budget: budget, errorsAreFalse: true})
		}
	}
	var found []Finding
	for _, p := range rules {
		rule := readOwn(p.Raw, lookupRule)
		if rule.err != nil {
			found = append(found, Finding{Outcome: Failed, Rule: text.Truncate(string(p.Raw), ruleShown), Why: rule.err.Error()})
			continue
		}
		if v := rule.matchAny(subjects); v.outcome != Satisfied {
			found = append(found, Finding{Outcome: v.outcome, Message: v.message, Rule: v.rule, Why: v.why, Attributes: v.attributes})
		}
	}
	return found
}

// BringsOwn reports whether there is a constraint among the properties of a bundle.
func BringsOwn(properties []olm.Property) bool { return hasType(properties, olm.TypeConstraint) }

// surroundings of the Set; of a nil Set nothing is known of the cluster.
func (s *Set) surroundings() surroundings {
	if s == nil {
		return clusterValues(Cluster{})
	}
	return s.around
}

// clusterUnknown is what is not known of the cluster as a candidate: while its version is not, its list of properties is not
// complete.
func (s *Set) clusterUnknown() Attributes {
	if s == nil || s.cluster.Version == "" {
		return Properties
	}
	return 0
}

// matchAny looks for a candidate that satisfies the rule. Where none does, what failed or is not known matters.
func (r *ownRule) matchAny(subjects []*subject) verdict {
	open := satisfied
	for _, subject := range subjects {
		switch v := r.check.judge(subject); v.outcome {
		case Satisfied:
			return satisfied
		case Undecided, Failed:
			open = worse(open, v)
		case Violated:
		}
	}
	if open.outcome == Satisfied {
		open = verdict{outcome: Violated, message: r.check.message}
	}
	// No candidate can be blamed, so the whole rule is named.
	open.rule = r.check.text
	if r.check.message != "" {
		open.message = r.check.message
	}
	return open
}

// Prepare compiles the rules of a bundle's own constraints, so that Own finds them. It is for places that may take
// milliseconds, not for the request path.
func Prepare(properties []olm.Property) {
	prepared := 0
	for _, p := range properties {
		if p.Type == olm.TypeConstraint && prepared < maxConstraints {
			prepared++
			readOwn(p.Raw, func(rule string) (*program, error) { return compileCached(rule, false) })
		}
	}
}

// lookupRule finds what was compiled before.
func lookupRule(rule string) (*program, error) {
	entry, ok := lookup(ruleKey(rule))
	if !ok {
		return nil, errNotCompiled
	}
	return entry.ready()
}

func readOwn(raw json.RawMessage, compiler func(string) (*program, error)) *ownRule {
	check, err := parseOwn(raw, compiler)
	return &ownRule{check: check, err: err}
}

// parseOwn reads a constraint as OLM does, by its own parser.
func parseOwn(raw json.RawMessage, compiler func(string) (*program, error)) (*check, error) {
	if depth(raw) > maxDepth {
		return nil, fmt.Errorf("it is nested deeper than %d levels", maxDepth)
	}
	parsed, err := constraints.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("it cannot be read: %s", text.Truncate(err.Error(), ruleShown))
	}
	size := 0
	c, err := newCheck(parsed, "", func(rule string) (*program, error) {
		if size += len(rule); size > maxRulesBytes {
			return nil, fmt.Errorf("is more CEL than one constraint may have (%d bytes)", maxRulesBytes)
		}
		return compiler(rule)
	})
	if errors.Is(err, errNotCompiled) {
		return nil, errNotCompiled
	}
	return c, err
}

// depth is how deep brackets are nested; of valid JSON.
func depth(raw []byte) int {
	deepest, now, quoted := 0, 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case bytes.IndexByte([]byte("[{"), c) >= 0:
			now++
			deepest = max(deepest, now)
		case bytes.IndexByte([]byte("]}"), c) >= 0:
			now--
		}
	}
	return deepest
}
