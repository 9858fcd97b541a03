package backstop

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

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

// Prefixes of the data of a check: names and intervals of versions. No other column of a row begins with them.
const (
	prefixName     = "="
	prefixInterval = "~"
)

// table is what the policies say, in lines: a literal list or map of this size would take the API server seconds to compile.
type table struct {
	// rows are "PACKAGE CHECK NAMESPACE/NAME MARK" by governed namespace, sorted by package and policy. The mark is "*" in the first row of a
	// policy and "-" in the others.
	rows map[string][]string
	// data is "=NAME =NAME ~INTERVAL|TEXT" by check; the text, for messages, is there if the names are not enough.
	data map[string][]string
	// manual are, by namespace, the packages of which Subscriptions are Manual.
	manual map[string][]string

	// left are the policies of which something is left to the webhooks, because the API server would not evaluate it.
	left []string

	checks map[string]string
	semver bool
}

// The API server compiles no expression of more than 100,000 characters, and spends no more than a million units on one evaluation, of which
// each row of a namespace takes a fifth of the sizes of its data and of the text in which that is looked up. What a policy has beyond that is
// left to the webhooks: it must not keep the API server from evaluating what other policies say, nor OLM from writing.
const (
	maxLine = 64 << 10
	maxRows = 200
	maxCost = 400_000
)

func newTable(in *Input) *table {
	t := &table{rows: map[string][]string{}, data: map[string][]string{}, manual: map[string][]string{},
		checks: map[string]string{}, semver: in.Features.Semver}
	policies := slices.Clone(in.Policies)
	slices.SortFunc(policies, func(a, b *rules.OperatorPolicy) int {
		return cmp.Or(cmp.Compare(a.TargetNamespace, b.TargetNamespace), cmp.Compare(a.Package, b.Package),
			cmp.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name))
	})
	for _, p := range policies {
		if p.Enforced && p.Concerns() != "" && !slices.Contains(in.ExcludedNamespaces, p.Concerns()) {
			t.add(p)
		}
	}
	t.bound()
	slices.Sort(t.left)
	t.left = slices.Compact(t.left)
	return t
}

// bound leaves the last rows of namespaces to the webhooks that have too many. Each row refuses by itself, so the others hold as before.
func (t *table) bound() {
	data, used := t.dataShards(), map[string]bool{}
	for namespace, rows := range t.rows {
		cost, size := 0, 0
		for i, row := range rows {
			columns := strings.Split(row, " ")
			cost += (data.size(columns[1]) + len(strings.Join(t.data[columns[1]], ""))) / 5
			size += len(quote(namespace + " " + row))
			if i >= maxRows || cost > maxCost || size > maxLine {
				for _, other := range rows[i:] {
					t.left = append(t.left, strings.Split(other, " ")[2])
				}
				t.rows[namespace] = rows[:i]
				break
			}
			used[columns[1]] = true
		}
	}
	maps.DeleteFunc(t.data, func(check string, _ []string) bool { return !used[check] })
}

func (t *table) dataShards() shards { return shard("n", "r[1]", lines(t.data)) }

func (t *table) add(p *rules.OperatorPolicy) {
	namespace, r := p.Concerns(), p.NameRules()
	policy := word(p.Namespace) + "/" + word(p.Name)
	mark := "*"
	for _, check := range t.checksOf(p, &r) {
		row := []string{word(p.Package), check, policy, mark}
		t.rows[namespace] = append(t.rows[namespace], strings.Join(row, " "))
		mark = "-"
	}
	if r.Manual && !p.Incomplete && !slices.Contains(t.manual[namespace], word(p.Package)) {
		t.manual[namespace] = append(t.manual[namespace], word(p.Package))
	}
}

// word returns a name as one column of a row. The API server stores no other names, and an unreadable policy may hold one.
func word(name string) string {
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r == '|' {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(name, "?"))
}

// checksOf returns the checks of a policy; there is always one.
func (t *table) checksOf(p *rules.OperatorPolicy, r *rules.NameRules) []string {
	if p.Incomplete { // what it says is known to the gate soon, or only there
		return []string{checkNothing}
	}
	var checks []string
	addCheck := func(kind string, names, intervals []string, show string) {
		if check := t.check(kind, names, intervals, show); check != "" {
			checks = append(checks, check)
		} else {
			t.left = append(t.left, word(p.Namespace)+"/"+word(p.Name))
		}
	}
	if r.Unreadable {
		checks = append(checks, checkUnreadable)
	}
	if r.Pending {
		checks = append(checks, checkPending)
	}
	var within []string
	if r.Range != nil && t.semver {
		within = compileRange(r.Range)
	}
	switch {
	case r.Forbid && r.Range == nil && len(r.Names) == 0:
		checks = append(checks, checkForbidAll)
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
func (t *table) check(kind string, names, intervals []string, show string) string {
	columns := make([]string, 0, len(names)+len(intervals))
	for _, name := range names {
		columns = append(columns, prefixName+word(name))
	}
	for _, interval := range intervals {
		columns = append(columns, prefixInterval+interval)
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
