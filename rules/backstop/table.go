package backstop

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// maxListed bounds the names that a message lists, as in messages of the gate.
const maxListed = 10

// The checks of a policy. A check with data has the letter followed by the number of the data, so that equal data is
// stored once.
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

// checkRules are the rules by which the checks refuse that an exception can set aside.
var checkRules = map[string]verdict.RuleID{
	checkPending: bundle.RuleDependencyPending, checkForbidAll: bundle.RuleMustNotHave,
	checkAllow: bundle.RuleVersion, checkForbid: bundle.RuleMustNotHave,
	checkAllowIn: bundle.RuleVersionRange, checkForbidIn: bundle.RuleMustNotHave,
}

// Prefixes of the data of a check: names, intervals of versions, and names for which an exception sets its rule aside.
// No other column of a row begins with them.
const (
	prefixName     = "="
	prefixInterval = "~"
	prefixExcepted = "!"
)

// everyPackage is in place of the package in a row about every package.
const everyPackage = "*"

// table is what the policies say, in lines: a literal list or map of this size would take the API server seconds to
// compile.
type table struct {
	// rows are "PACKAGE CHECK NAMESPACE/NAME MARK" by governed namespace, sorted by package and policy. The mark is "*"
	// in the first row of a policy and "-" in the others.
	rows map[string][]string
	// data is "=NAME =NAME ~INTERVAL !NAME|TEXT" by check, and "" for checks without data. The text, for messages,
	// follows if the names are not enough.
	data map[string][]string
	// everywhere are the rows of the policies whose namespace cannot be read. They count in every namespace, and have
	// no data.
	everywhere []string
	// anyPackage is set if a row is about every package, excepted if the data of one has an exception.
	anyPackage, excepted bool
	// now is the time at which exceptions are in force.
	now time.Time
	// manual are the namespaces with a policy that judges plans. All Subscriptions there are Manual.
	manual map[string][]string

	// accounts are, by governed namespace, those of Input.Accounts.
	accounts map[string][]string

	// left are the policies of which something is left to the webhooks, because the API server would not evaluate it.
	left []string

	checks map[string]string
	semver bool
}

func newTable(in *Input) *table {
	t := &table{rows: map[string][]string{}, data: map[string][]string{}, manual: map[string][]string{},
		accounts: map[string][]string{}, checks: map[string]string{}, semver: in.Features.Semver, now: in.Now}
	policies := slices.Clone(in.Policies)
	slices.SortFunc(policies, func(a, b *state.OperatorPolicy) int {
		return cmp.Or(cmp.Compare(a.TargetNamespace, b.TargetNamespace), cmp.Compare(a.Package, b.Package),
			cmp.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name))
	})
	var entries, everywhere []*entry
	same := func(a, b *state.OperatorPolicy) bool {
		return a.AnyNamespace && b.AnyNamespace && a.Source() == b.Source()
	}
	for _, p := range slices.CompactFunc(policies, same) { // those of every namespace come with each of them
		if p.Enforced && p.AnyNamespace {
			everywhere = append(everywhere, t.entryOf(p))
		} else if p.Enforced && p.Concerns() != "" && !slices.Contains(in.ExcludedNamespaces, p.Concerns()) {
			entries = append(entries, t.entryOf(p))
			if names := sorted(in.Accounts[p.Concerns()]); len(names) > 0 {
				t.accounts[p.Concerns()] = names[:min(len(names), maxAccounts)]
			}
		}
	}
	if len(everywhere) > 0 {
		t.addEverywhere(everywhere, in.Accounts)
	}
	used := map[string]bool{}
	kept := t.bound(entries)
	for _, e := range kept {
		t.rows[e.governs] = append(t.rows[e.governs], e.rows...)
		for _, check := range e.checks {
			used[check] = true
		}
	}
	for namespace, rows := range t.rows {
		if slices.ContainsFunc(rows, judges) {
			t.manual[namespace] = []string{"*"}
		}
	}
	maps.DeleteFunc(t.data, func(check string, _ []string) bool { return !used[check] })
	maps.DeleteFunc(t.accounts, func(namespace string, _ []string) bool {
		return len(t.rows[namespace])+len(t.everywhere) == 0
	})
	slices.Sort(t.left)
	t.left = slices.Compact(t.left)
	return t
}

func (t *table) dataShards() shards { return shard("n", "r[1]", lines(t.data)) }

// entryOf returns the rows of a policy, and stores their data.
func (t *table) entryOf(p *state.OperatorPolicy) *entry {
	r := p.NameRules()
	e := &entry{origin: originOf(p), governs: p.Concerns()}
	mark := "*"
	for _, check := range t.checksOf(p, &r) {
		if t.data[check] == nil { // without data, a look-up would search the text of another check
			t.data[check] = []string{""}
		}
		pkg := strings.ReplaceAll(word(p.Package), everyPackage, "?")
		if p.AnyPackage {
			pkg, t.anyPackage = everyPackage, true
		}
		e.rows = append(e.rows, strings.Join([]string{pkg, check, e.key(), mark}, " "))
		e.checks = append(e.checks, check)
		mark = "-"
	}
	return e
}

// addEverywhere adds the rows of the policies that count in every namespace, of which there may be few, and the
// accounts of all namespaces.
func (t *table) addEverywhere(entries []*entry, accounts map[string][]string) {
	size := 0
	for namespace, names := range accounts {
		names = sorted(names)
		t.accounts[namespace] = names[:min(len(names), maxAccounts)]
		size += sizeOf(namespace, t.accounts[namespace])
	}
	if size > maxLine {
		t.accounts = nil // as where they are not known
	}
	for i, e := range fair(entries, func(e *entry) int { return len(e.rows) }) {
		if i < maxEverywhere {
			t.everywhere = append(t.everywhere, e.rows...)
		} else {
			t.left = append(t.left, e.key())
		}
	}
	slices.Sort(t.everywhere)
}

// judges reports whether a row is of a policy that has to judge each plan.
func judges(row string) bool { return strings.Split(row, " ")[1] != checkNothing }

// word returns a name as one column of a row. The API server stores no other names, and an unreadable policy may hold
// one.
func word(name string) string {
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r == '|' {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(name, "?"))
}

// checksOf returns the checks of a policy; there is always one.
func (t *table) checksOf(p *state.OperatorPolicy, r *state.NameRules) []string {
	if p.Incomplete { // what it says is known to the gate soon, or only there
		return []string{checkNothing}
	}
	var checks []string
	addCheck := func(kind string, names, intervals []string, show string) {
		excepted := p.Exceptions().Names(checkRules[kind], t.now)
		if len(names)+len(intervals)+len(excepted) == 0 && show == "" {
			checks = append(checks, kind)
			return
		}
		if check := t.check(kind, names, intervals, excepted, show); check != "" {
			checks = append(checks, check)
		} else {
			t.left = append(t.left, word(p.Namespace)+"/"+word(p.Name))
		}
	}
	if r.Unreadable {
		checks = append(checks, checkUnreadable)
	}
	if r.Pending {
		addCheck(checkPending, nil, nil, "")
	}
	var within []string
	if r.Range != nil && t.semver {
		within = compileRange(r.Range)
	}
	switch {
	case r.Forbid && r.Range == nil && len(r.Names) == 0:
		addCheck(checkForbidAll, nil, nil, "")
	case r.Forbid && r.Range == nil:
		addCheck(checkForbid, r.Names, nil, listText(r.Names))
	case r.Forbid && within != nil:
		scope := "package " + p.Package
		if len(r.Names) > 0 {
			scope = text.Names(r.Names, maxListed)
		}
		addCheck(checkForbidIn, r.Names, within, scope+" in range "+text.Quote(r.Range.String()))
	case r.Allow:
		var start []string
		if r.Start != "" {
			start = []string{r.Start}
		}
		if len(r.Names) > 0 {
			names := slices.Clone(r.Names)
			if r.Start != "" && !slices.Contains(names, r.Start) {
				names = append(names, r.Start)
			}
			addCheck(checkAllow, names, nil, listText(names))
		}
		if within != nil {
			addCheck(checkAllowIn, start, within, text.Quote(r.Range.String()))
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

// listText returns the text for a list of names that is too long to show; "" for the others.
func listText(names []string) string {
	if len(names) <= maxListed {
		return ""
	}
	return text.Names(names, maxListed)
}

// check returns the check of a kind with some data, and stores the data; "" if that is too long.
func (t *table) check(kind string, names, intervals, excepted []string, show string) string {
	columns := make([]string, 0, len(names)+len(intervals))
	for _, name := range names {
		columns = append(columns, prefixName+word(name))
	}
	for _, interval := range intervals {
		columns = append(columns, prefixInterval+interval)
	}
	for _, name := range excepted {
		t.excepted = true
		columns = append(columns, prefixExcepted+word(name))
	}
	line := strings.Join(columns, " ") + "|" + show
	if len(quote(line)) > maxLine {
		return ""
	}
	id, ok := t.checks[kind+line]
	if !ok {
		id = kind + strconv.Itoa(len(t.checks))
		t.checks[kind+line], t.data[id] = id, []string{line}
	}
	return id
}

// lines returns all lines, "KEY VALUE", sorted by key.
func lines(values map[string][]string) []line {
	var all []line
	for _, key := range slices.Sorted(maps.Keys(values)) {
		all = append(all, line{key, values[key]})
	}
	return all
}
