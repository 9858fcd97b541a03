package backstop

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules"
)

// maxListed bounds the names that a message lists, as in messages of the gate.
const maxListed = 10

// The checks of a policy. A check with data has the letter followed by the number of the data, so that equal data is stored once.
const (
	checkUnreadable = "u" // everything is held
	checkPending    = "p" // everything in a plan is held
	checkForbidAll  = "f" // mustnothave for every version
	checkAllow      = "a" // only the names are allowed
	checkForbid     = "d" // the names are forbidden
	checkAllowIn    = "r" // only the range, and the names, are allowed
	checkForbidIn   = "e" // the range, of the names if there are any, is forbidden
	checkManual     = "m" // nothing is refused, but Subscriptions are Manual
	checkNothing    = "n" // nothing is refused by name and version
)

// table is what the policies say, as it is stored in the objects.
type table struct {
	// namespaces has for each governed namespace and package the policies, sorted, as "CHECK+CHECK NAMESPACE/NAME".
	namespaces map[string]map[string][]string
	// manual has for each namespace the packages of which Subscriptions are Manual.
	manual map[string][]string
	// names, ranges and texts are the data of checks: names of ClusterServiceVersions, the alternatives of a version range, and what a message
	// says is allowed or forbidden where names do not.
	names, ranges, texts map[string]string

	checks map[string]string
	semver bool
}

func newTable(in *Input) *table {
	t := &table{namespaces: map[string]map[string][]string{}, manual: map[string][]string{}, names: map[string]string{},
		ranges: map[string]string{}, texts: map[string]string{}, checks: map[string]string{}, semver: in.Features.Semver}
	policies := slices.Clone(in.Policies)
	slices.SortFunc(policies, func(a, b *rules.OperatorPolicy) int {
		return cmp.Or(cmp.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name))
	})
	for _, p := range policies {
		if p.Enforced && p.Concerns() != "" && !slices.Contains(in.ExcludedNamespaces, p.Concerns()) {
			t.add(p)
		}
	}
	return t
}

func (t *table) add(p *rules.OperatorPolicy) {
	namespace, r := p.Concerns(), p.NameRules()
	if t.namespaces[namespace] == nil {
		t.namespaces[namespace] = map[string][]string{}
	}
	entry := strings.Join(t.checksOf(p, &r), "+") + " " + p.Namespace + "/" + p.Name
	t.namespaces[namespace][p.Package] = append(t.namespaces[namespace][p.Package], entry)
	if r.Manual && !slices.Contains(t.manual[namespace], p.Package) {
		t.manual[namespace] = append(t.manual[namespace], p.Package)
	}
}

// checksOf returns the checks of a policy; there is always one.
func (t *table) checksOf(p *rules.OperatorPolicy, r *rules.NameRules) []string {
	var checks []string
	if r.Unreadable {
		checks = append(checks, checkUnreadable)
	}
	if r.Pending {
		checks = append(checks, checkPending)
	}
	within := ""
	if r.Range != nil && t.semver {
		within = compileRange(r.Range)
	}
	switch {
	case r.Forbid && r.Range == nil && len(r.Names) == 0:
		checks = append(checks, checkForbidAll)
	case r.Forbid && r.Range == nil:
		checks = append(checks, t.check(checkForbid, r.Names, "", listText(r.Names)))
	case r.Forbid && within != "":
		scope := "package " + p.Package
		if len(r.Names) > 0 {
			scope = text.Names(r.Names, maxListed)
		}
		checks = append(checks, t.check(checkForbidIn, r.Names, within, scope+" in range "+text.Quote(r.Range.String())))
	case r.Allow:
		var start []string
		if r.Start != "" {
			start = []string{r.Start}
		}
		if len(r.Names) > 0 {
			names := slices.Compact(append(slices.Clone(r.Names), start...))
			checks = append(checks, t.check(checkAllow, names, "", listText(names)))
		}
		if within != "" {
			checks = append(checks, t.check(checkAllowIn, start, within, text.Quote(r.Range.String())))
		}
	}
	switch {
	case len(checks) > 0:
	case r.Manual:
		checks = append(checks, checkManual)
	default:
		checks = append(checks, checkNothing)
	}
	return checks
}

// listText returns the text for a list of names that a message cannot show as it is; "" for the others.
func listText(names []string) string {
	if len(names) <= maxListed {
		return ""
	}
	return text.Names(names, maxListed)
}

// check returns the check of a kind with some data, and stores the data.
func (t *table) check(kind string, names []string, within, show string) string {
	list := quoteList(names)
	key := kind + list + within
	id, ok := t.checks[key]
	if ok {
		return id
	}
	id = kind + strconv.Itoa(len(t.checks))
	t.checks[key], t.names[id] = id, list
	if within != "" {
		t.ranges[id] = within
	}
	if show != "" {
		t.texts[id] = quote(show)
	}
	return id
}

// quoted returns the namespaces as CEL literals.
func (t *table) quoted() map[string]string {
	entries := make(map[string]string, len(t.namespaces))
	for namespace, packages := range t.namespaces {
		parts := make([]string, 0, len(packages))
		for _, pkg := range slices.Sorted(maps.Keys(packages)) {
			parts = append(parts, quote(pkg)+":"+quoteList(packages[pkg]))
		}
		entries[namespace] = "{" + strings.Join(parts, ",") + "}"
	}
	return entries
}

// quotedManual returns the packages with Manual Subscriptions, by namespace, as CEL literals.
func (t *table) quotedManual() map[string]string {
	entries := make(map[string]string, len(t.manual))
	for namespace, packages := range t.manual {
		slices.Sort(packages)
		entries[namespace] = quoteList(packages)
	}
	return entries
}

// maxExpression is the size in characters of the longest expression that the compiler of CEL reads, with some room.
const maxExpression = 90_000

// shards is a map literal, split into as many variables as its size needs.
type shards struct {
	name string
	// first are the least keys of the shards, after the first one.
	first     []string
	variables []admissionv1.Variable
}

// shard makes the variables of a map from strings, of which the values are literals of one type; empty is the type's empty literal.
func shard(name string, entries map[string]string, empty string) shards {
	s := shards{name: name}
	var b strings.Builder
	flush := func() {
		s.variables = append(s.variables, admissionv1.Variable{Name: fmt.Sprintf("%s%d", name, len(s.variables)), Expression: "{" + b.String() + "}"})
		b.Reset()
	}
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		entry := quote(key) + ":" + entries[key]
		if b.Len() > 0 && b.Len()+len(entry) > maxExpression {
			flush()
			s.first = append(s.first, key)
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(entry)
	}
	if b.Len() == 0 { // an empty literal would have no type
		b.WriteString("'':" + empty)
	}
	flush()
	return s
}

// get returns an expression for the value of a key, which is an expression too; missing is that for a missing key.
func (s *shards) get(key, missing string) string {
	at := func(i int) string { return fmt.Sprintf("variables.%s%d[?%s]", s.name, i, key) }
	e := at(0)
	for i, least := range s.first {
		e = fmt.Sprintf("(%s < %s ? %s : %s)", key, quote(least), e, at(i+1))
	}
	return e + ".orValue(" + missing + ")"
}
