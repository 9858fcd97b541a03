package constraint

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/operator-framework/api/pkg/constraints"

	"github.com/opgate/opgate/internal/apijson"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/facts"
)

// whyNotCompiled is for a bundle's own rule that Prepare has not compiled, or that was evicted since.
const whyNotCompiled = "it is not compiled yet; try again in a moment"

var errNotCompiled = errors.New(whyNotCompiled)

// ownRule is a bundle's own compiled constraint, or why it cannot be compiled.
type ownRule struct {
	check *check
	err   error
}

// Own judges the olm.constraint properties of one bundle, and returns a finding for each that no candidate satisfies.
//
// It follows OLM. Its resolver searches for bundles that match a constraint among all it knows, which include the
// bundle itself and the ClusterServiceVersions of the namespace (getBundleVariables and addInvariants in
// operator-lifecycle-manager pkg/controller/registry/resolver/resolver.go: the predicate is applied to
// namespacedCache.Find, which includes the bundle itself, and installing a bundle satisfies its dependency on itself).
// One candidate must match the whole compound (cache.And, Or and Not apply to one entry). So the candidates are the
// bundle itself, the given ones, and the cluster with its properties. A rule that fails on a candidate does not match
// it.
//
// Rules have the variables of cluster constraints, with the values of the candidate. They are not compiled here.
func (s *Set) Own(b *Bundle, candidates []*Bundle, ns Namespace, budget *Budget) []Result {
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
		return []Result{{Outcome: Failed,
			Why: fmt.Sprintf("the bundle has %d constraints of its own, at most %d are judged", len(rules),
				maxConstraints)}}
	}
	own, end := budget.ofBundle() // on all candidates: it is this bundle that asks
	defer end()
	around := s.surroundings().in(ns)
	bundles := make([]*judged, 0, len(candidates)+2)
	seen := map[*Bundle]bool{}
	for _, candidate := range append([]*Bundle{b, s.asBundle()}, candidates...) {
		if candidate != nil && !seen[candidate] {
			seen[candidate] = true
			bundles = append(bundles, &judged{bundle: candidate, around: &around, budget: own,
				errorsAreFalse: true})
		}
	}
	var found []Result
	for _, p := range rules {
		rule := readOwn(p.Raw, lookupRule)
		if rule.err != nil {
			found = append(found, Result{Outcome: Failed, Rule: text.Truncate(string(p.Raw), ruleShown),
				Why: rule.err.Error()})
			continue
		}
		if v := rule.matchAny(bundles); v.outcome != Satisfied {
			found = append(found, Result{Outcome: v.outcome, Message: v.message, Rule: v.rule, Why: v.reason(b),
				Attributes: v.attributes})
		}
	}
	return found
}

// BringsOwn reports whether the properties of a bundle contain a constraint.
func BringsOwn(properties []olm.Property) bool { return hasType(properties, olm.TypeConstraint) }

// surroundings returns those of the Set; for a nil Set nothing is known of the cluster.
func (s *Set) surroundings() surroundings {
	if s == nil {
		return clusterValues(&facts.Cluster{}, nil)
	}
	return s.around
}

// asBundle returns the cluster as a candidate: while its version is unknown, its properties are incomplete.
func (s *Set) asBundle() *Bundle {
	if s == nil {
		return &Bundle{Unknown: Properties}
	}
	b := &Bundle{Bundle: olm.Bundle{Properties: s.properties}}
	if s.cluster.Version == "" {
		b.Unknown = Properties
	}
	return b
}

// matchAny searches for a candidate that satisfies the rule. If there is none, failed and unknown results count.
func (r *ownRule) matchAny(bundles []*judged) verdict {
	open := satisfied
	for _, judged := range bundles {
		switch v := r.check.judge(judged); v.outcome {
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
	// No single candidate caused this, so the message names the whole rule.
	open.rule = r.check.text
	if r.check.message != "" {
		open.message = r.check.message
	}
	return open
}

// Prepare compiles the rules of a bundle's own constraints for Own. It may take milliseconds, so it must not be called
// on the request path.
func Prepare(properties []olm.Property) {
	prepared := 0
	for _, p := range properties {
		if p.Type == olm.TypeConstraint && prepared < maxConstraints {
			prepared++
			readOwn(p.Raw, func(rule string) (*program, error) { return compileCached(rule, OnBundle, false) })
		}
	}
}

// lookupRule returns a cached program.
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

// parseOwn parses a constraint with OLM's own parser.
func parseOwn(raw json.RawMessage, compiler func(string) (*program, error)) (*check, error) {
	if _, depth := apijson.Measure(raw); depth > maxDepth {
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
