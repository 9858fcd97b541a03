package constraint

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/blang/semver/v4"
	"github.com/google/cel-go/common/types"
	"github.com/operator-framework/api/pkg/constraints"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
)

// check is a compiled constraint: a CEL rule, a package, a gvk, or a compound of others. It is immutable.
type check struct {
	kind checkKind
	// text is a short form of the rule for messages; message is its author's failureMessage.
	text, message string

	program *program
	pkg     string
	within  semver.Range
	gvk     constraints.GVKConstraint
	parts   []*check
}

type checkKind int

const (
	celCheck checkKind = iota
	packageCheck
	gvkCheck
	allCheck
	anyCheck
	noneCheck
)

// errEmpty matches OLM's resolver, which rejects {} too: convertConstraints in operator-lifecycle-manager
// pkg/controller/registry/resolver/resolver.go.
var errEmpty = errors.New("is empty; one of cel, package, gvk, all, any and not is required")

// faultAt is an error with the path of the faulty part, relative to the constraint's value.
type faultAt struct {
	path, value string
	err         error
}

func (f *faultAt) Error() string {
	if f.path == "" {
		return "it " + f.err.Error()
	}
	return strings.TrimPrefix(f.path, ".") + " " + f.err.Error()
}

func (f *faultAt) Unwrap() error { return f.err }

// newCheck compiles a constraint in OLM's syntax. If several kinds are set, the first in this order counts, and the
// others are ignored, as in OLM's resolver (convertConstraints). The compiler is a parameter: definitions compile, the
// request path only uses the cache.
func newCheck(c constraints.Constraint, path string, compiler func(string) (*program, error)) (*check, error) {
	made := &check{message: c.FailureMessage}
	switch {
	case c.GVK != nil:
		made.kind, made.gvk = gvkCheck, *c.GVK
		made.text = text.Truncate(fmt.Sprintf("gvk %s/%s %s", c.GVK.Group, c.GVK.Version, c.GVK.Kind), ruleShown)
	case c.Package != nil:
		within, err := semver.ParseRange(c.Package.VersionRange)
		if err != nil {
			return nil, &faultAt{path + ".package.versionRange", c.Package.VersionRange,
				errors.New(`is not a version range such as ">=1.2.0 <2.0.0"`)}
		}
		made.kind, made.pkg, made.within = packageCheck, c.Package.PackageName, within
		made.text = text.Truncate(fmt.Sprintf("package %s in range %q", c.Package.PackageName, c.Package.VersionRange),
			ruleShown)
	case c.All != nil:
		return made.compound(allCheck, "all of (", c.All, path+".all", compiler)
	case c.Any != nil:
		return made.compound(anyCheck, "any of (", c.Any, path+".any", compiler)
	case c.Not != nil:
		return made.compound(noneCheck, "none of (", c.Not, path+".not", compiler)
	case c.Cel != nil:
		program, err := compiler(c.Cel.Rule)
		if err != nil {
			return nil, &faultAt{path + ".cel.rule", c.Cel.Rule, err}
		}
		made.kind, made.program, made.text = celCheck, program, text.Truncate(c.Cel.Rule, ruleShown)
	default:
		return nil, &faultAt{path, "{}", errEmpty}
	}
	return made, nil
}

func (c *check) compound(
	kind checkKind, open string, of *constraints.CompoundConstraint, path string,
	compiler func(string) (*program, error),
) (*check, error) {
	texts := make([]string, 0, len(of.Constraints))
	for i := range of.Constraints {
		part, err := newCheck(of.Constraints[i], fmt.Sprintf("%s.constraints[%d]", path, i), compiler)
		if err != nil {
			return nil, err
		}
		c.parts = append(c.parts, part)
		texts = append(texts, part.text)
	}
	c.kind, c.text = kind, text.Truncate(open+strings.Join(texts, "; ")+")", ruleShown)
	return c, nil
}

// uses returns the attributes that the constraint reads.
func (c *check) uses() Attributes {
	var all Attributes
	switch c.kind {
	case celCheck:
		return c.program.uses
	case packageCheck:
		return Package | Version | Properties
	case gvkCheck:
		return Properties
	case allCheck, anyCheck, noneCheck:
		for _, part := range c.parts {
			all |= part.uses()
		}
	}
	return all
}

// judged is a bundle to judge, with the values that all rules share.
type judged struct {
	bundle *Bundle
	around *surroundings
	budget *Budget
	// errorsAreFalse makes a rule that fails on a candidate not match, as in OLM (celPredicate.Test in
	// operator-lifecycle-manager pkg/controller/registry/resolver/cache/predicates.go). Exceeded limits are not OLM's
	// and stay failures.
	errorsAreFalse bool

	activation *activation
	parsed     bool
	packages   []packageProperty
	gvks       []gvkProperty
}

type packageProperty struct{ PackageName, Version string }

type gvkProperty struct{ Group, Kind, Version string }

func (s *judged) vars() *activation {
	if s.activation == nil {
		s.activation = newActivation(s.bundle, s.around)
	}
	return s.activation
}

// parse reads the properties for package and gvk constraints as OLM's predicates do: with encoding/json, skipping what
// does not parse.
func (s *judged) parse() {
	if s.parsed {
		return
	}
	s.parsed = true
	for _, p := range s.bundle.Properties {
		switch p.Type {
		case olm.TypePackage:
			var v packageProperty
			if json.Unmarshal(p.Raw, &v) == nil {
				s.packages = append(s.packages, v)
			}
		case olm.TypeGVK:
			var v gvkProperty
			if json.Unmarshal(p.Raw, &v) == nil {
				s.gvks = append(s.gvks, v)
			}
		}
	}
}

// verdict is the result of a check on a bundle.
type verdict struct {
	outcome Outcome
	// rule and message are those of the part that failed.
	rule, message string
	// why is set if the outcome is Failed, attributes if it is Undecided.
	why        string
	attributes Attributes
	transient  bool
	// costly is set if the rule costs more than its limit.
	costly bool
}

var satisfied = verdict{outcome: Satisfied}

// reason returns why a bundle could not be judged.
func (v *verdict) reason(b *Bundle) string {
	if v.outcome == Undecided {
		return b.notKnown(v.attributes)
	}
	return v.why
}

func (c *check) violated() verdict {
	return verdict{outcome: Violated, rule: c.text, message: c.message}
}

func (c *check) undecided(a Attributes) verdict {
	return verdict{outcome: Undecided, rule: c.text, message: c.message, attributes: a}
}

// judge applies the check. Compounds are three-valued (Kleene): an unknown or failed part is ignored if another part
// decides.
func (c *check) judge(s *judged) verdict {
	switch c.kind {
	case celCheck:
		return c.judgeRule(s)
	case packageCheck:
		return c.judgePackage(s)
	case gvkCheck:
		if s.bundle.Unknown&Properties != 0 {
			return c.undecided(Properties)
		}
		s.parse()
		for _, g := range s.gvks {
			if g.Group == c.gvk.Group && g.Version == c.gvk.Version && g.Kind == c.gvk.Kind {
				return satisfied
			}
		}
		return c.violated()
	case allCheck:
		open := satisfied
		for _, part := range c.parts {
			switch v := part.judge(s); v.outcome {
			case Violated:
				v.transient = v.transient || open.transient
				return c.speak(v)
			case Undecided, Failed:
				open = worse(open, v)
			case Satisfied:
			}
		}
		return c.speak(open)
	default: // any, none
		return c.judgeAlternatives(s)
	}
}

func (c *check) judgeAlternatives(s *judged) verdict {
	open := satisfied
	for _, part := range c.parts {
		switch v := part.judge(s); v.outcome {
		case Satisfied:
			if c.kind == anyCheck {
				return satisfied
			}
			v = c.violated()
			v.rule = text.Truncate("none of ("+part.text+")", ruleShown)
			return v
		case Undecided, Failed:
			open = worse(open, v)
		case Violated:
		}
	}
	switch {
	case open.outcome != Satisfied:
		return c.speak(open)
	case c.kind == noneCheck:
		return satisfied
	default:
		return c.violated()
	}
}

// speak sets the check's message on a verdict that has none.
func (c *check) speak(v verdict) verdict {
	if v.message == "" {
		v.message = c.message
	}
	return v
}

// worse returns the first undecided verdict; a failure takes precedence over an unknown.
func worse(a, b verdict) verdict {
	switch {
	case a.outcome == Satisfied, a.outcome == Undecided && b.outcome == Failed:
		b.attributes |= a.attributes
		b.transient = b.transient || a.transient
		return b
	case a.outcome == Undecided && b.outcome == Undecided:
		a.attributes |= b.attributes
	}
	a.transient = a.transient || b.transient
	return a
}

func (c *check) judgeRule(s *judged) verdict {
	r := c.program.eval(s.vars(), s.budget)
	switch {
	case r.value == types.True:
		return satisfied
	case r.value != nil:
		return c.violated()
	case r.unknown != 0:
		return c.undecided(r.unknown)
	case s.errorsAreFalse && !r.limited:
		return c.violated()
	}
	return verdict{outcome: Failed, rule: c.text, message: c.message, why: r.why, transient: r.transient,
		costly: r.costly}
}

// judgePackage follows OLM's PkgPredicate and VersionInRangePredicate: some olm.package property has the name or the
// bundle is of the package, and some olm.package property's version or the bundle's is in the range.
func (c *check) judgePackage(s *judged) verdict {
	b := s.bundle
	named, inRange := false, false
	if b.Unknown&Package == 0 {
		named = b.Package == c.pkg
	}
	if b.Unknown&Version == 0 {
		inRange = c.contains(b.Version)
	}
	s.parse()
	for _, p := range s.packages {
		named = named || p.PackageName == c.pkg
		inRange = inRange || c.contains(p.Version)
	}
	// A bundle has one package and one version: if those are known, the properties add nothing.
	var missing Attributes
	if !named && b.Unknown&Package != 0 && len(s.packages) == 0 {
		missing |= Package
	}
	if !inRange && b.Unknown&Version != 0 && len(s.packages) == 0 {
		missing |= Version
	}
	switch {
	case named && inRange:
		return satisfied
	case !named && missing&Package == 0, !inRange && missing&Version == 0:
		return c.violated()
	default:
		return c.undecided(missing)
	}
}

func (c *check) contains(version string) bool {
	v, err := semver.Parse(version)
	return err == nil && c.within(v)
}
