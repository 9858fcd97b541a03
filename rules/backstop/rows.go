package backstop

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/opgate/opgate/internal/fair"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/verdict"
)

// The limits of the API server: it compiles no expression of more than 100,000 characters, spends no more than a million
// units on one evaluation, and stores no object of more than 1.5 MiB, of which managed fields and status take a part.
const (
	// maxNamespace bounds the rows about one namespace in bytes. Each row counts as a 200th at least.
	maxNamespace = maxText
	maxRows      = 200
	// maxTable bounds all rows, in bytes of JSON.
	maxTable = 1152 << 10
	// maxKept bounds the rows about what may not be replaced, in the same way.
	maxKept = 128 << 10
	// maxEverywhere bounds the policies that count in every namespace: there is one more where a stored one cannot be
	// read.
	maxEverywhere = 20
	// maxAccounts bounds the accounts of a namespace. OLM installs nothing in a namespace with several OperatorGroups.
	maxAccounts = 4
	// maxListed bounds the names that a message lists, as in messages of the gate.
	maxListed = 10
)

// The checks of a policy.
const (
	checkUnreadable = "unreadable"   // everything is held
	checkPending    = "pending"      // everything in a plan is held
	checkForbidAll  = "forbid-all"   // mustnothave for every version
	checkAllow      = "allow"        // only the names are allowed
	checkForbid     = "forbid"       // the names are forbidden
	checkAllowIn    = "allow-range"  // only the range, and the names, are allowed
	checkForbidIn   = "forbid-range" // the range, of the names if there are any, is forbidden
	checkManual     = "manual"       // nothing is refused, but Subscriptions are Manual
	checkNothing    = "nothing"      // nothing is refused by name and version
)

// checkRules are the rules by which the checks refuse that an exception can set aside.
var checkRules = map[string]verdict.RuleID{
	checkPending: bundle.RuleDependencyPending, checkForbidAll: bundle.RuleMustNotHave,
	checkAllow: bundle.RuleVersion, checkForbid: bundle.RuleMustNotHave,
	checkAllowIn: bundle.RuleVersionRange, checkForbidIn: bundle.RuleMustNotHave,
}

// entry is what one policy adds to the table.
type entry struct {
	fair.Origin
	// governs is the namespace that the policy governs something in, pkg the package, or "*".
	governs, pkg string
	// rows are "PACKAGE CHECK NAMESPACE/NAME MARK =NAME ~INTERVAL !NAME |TEXT". The package of a policy of every package
	// is "*"; the mark is "*" in the first row of a policy and "-" in the others; names after "!" are those for which an
	// exception sets the rule aside; the text, for messages, follows if the names are not enough.
	rows []string
}

// key is NAMESPACE/NAME of the policy.
func (e *entry) key() string { return word(e.String()) }

// judges reports whether the policy has to judge each plan.
func (e *entry) judges() bool { return strings.Split(e.rows[0], " ")[1] != checkNothing }

// rows is what policies say of plans, ClusterServiceVersions and Subscriptions.
type rows struct {
	// byNamespace are the rows by governed namespace, everywhere those that count in every namespace: of policies whose
	// namespace cannot be read.
	byNamespace map[string][]string
	everywhere  []string
	// manual are the namespaces with a policy that judges plans. All Subscriptions there are Manual.
	manual map[string][]string
	// accounts are those of Input.Accounts that count, by namespace; nil if they are more than an object holds.
	accounts map[string][]string
	// kept are "CSV PACKAGE SOURCE" of Input.Kept, by namespace.
	kept map[string][]string
	// left are the policies of which something is left to the webhooks.
	left []fair.Origin
}

// keptRow is a row of one of Input.Kept, of a namespace.
type keptRow struct{ of, row string }

// rows returns what the policies say, as far as the API server evaluates and stores it.
func (in *Input) rows() *rows {
	r := &rows{byNamespace: map[string][]string{}, manual: map[string][]string{}, accounts: map[string][]string{}}
	var all, everywhere []*entry
	governed, seen := map[string][]*entry{}, map[string]bool{}
	for _, p := range in.Policies {
		switch {
		case !p.Enforced, p.AnyNamespace && seen[p.Source()]: // that of every namespace comes with each of them
		case p.AnyNamespace:
			seen[p.Source()] = true
			everywhere = append(everywhere, r.entryOf(p, in))
		case p.Concerns() != "" && !slices.Contains(in.ExcludedNamespaces, p.Concerns()):
			governed[p.Concerns()] = append(governed[p.Concerns()], r.entryOf(p, in))
		}
	}
	for namespace, names := range in.Accounts {
		if names = sorted(names); len(names) > 0 && (len(everywhere) > 0 || len(governed[namespace]) > 0) {
			r.accounts[namespace] = names[:min(len(names), maxAccounts)]
		}
	}
	if len(everywhere) > 0 && sizeOf("", slices.Concat(slices.Collect(maps.Values(r.accounts))...)) > maxText {
		r.accounts = nil // as where they are not known
	}
	for _, entries := range governed {
		all = append(all, keep(r, entries, maxNamespace, func(e *entry) int {
			weight := 0
			for _, row := range e.rows {
				weight += max(len(quote(e.governs+" "+row)), maxNamespace/maxRows)
			}
			return weight
		})...)
	}
	all = keep(r, all, maxTable, func(e *entry) int {
		return sizeOf(e.governs, e.rows) + sizeOf(e.governs, r.accounts[e.governs])
	})
	slices.SortFunc(all, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.pkg, b.pkg), cmp.Compare(a.key(), b.key()))
	})
	for _, e := range all {
		r.byNamespace[e.governs] = append(r.byNamespace[e.governs], e.rows...)
		if e.judges() {
			r.manual[e.governs] = []string{"*"}
		}
	}
	maps.DeleteFunc(r.accounts, func(namespace string, _ []string) bool {
		return len(r.byNamespace[namespace])+len(everywhere) == 0
	})
	for _, e := range keep(r, everywhere, maxEverywhere, func(*entry) int { return 1 }) {
		r.everywhere = append(r.everywhere, e.rows...)
	}
	slices.Sort(r.everywhere)
	r.addKept(in)
	slices.SortStableFunc(r.left, func(a, b fair.Origin) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	r.left = slices.Compact(r.left)
	return r
}

// addKept adds what may not be replaced, as far as there is room.
func (r *rows) addKept(in *Input) {
	var all []fair.Claim[keptRow]
	origins := map[verdict.PolicyRef]fair.Origin{}
	for _, p := range in.Policies {
		origins[p.Ref()] = p.Origin()
	}
	for namespace, list := range in.Kept {
		for _, k := range list {
			if slices.Contains(in.ExcludedNamespaces, namespace) {
				continue
			}
			row := word(k.CSV) + " " + word(k.Package) + " " + k.By.String()
			all = append(all, fair.Claim[keptRow]{
				Origin: cmp.Or(origins[k.By], fair.Origin{Namespace: k.By.Namespace, Name: k.By.Name}),
				Row:    keptRow{namespace, row}, Weight: sizeOf(namespace, []string{row})})
		}
	}
	slices.SortFunc(all, func(a, b fair.Claim[keptRow]) int {
		return cmp.Or(cmp.Compare(a.Row.of, b.Row.of), cmp.Compare(a.Row.row, b.Row.row))
	})
	kept, left := fair.Within(all, maxKept)
	r.kept, r.left = map[string][]string{}, append(r.left, left...)
	for _, k := range kept {
		r.kept[k.Row.of] = append(r.kept[k.Row.of], k.Row.row)
	}
	for _, rows := range r.kept {
		slices.Sort(rows)
	}
}

// keep returns those of some entries that a limit has room for, and notes the others.
func keep(r *rows, entries []*entry, limit int, weight func(*entry) int) []*entry {
	claims := make([]fair.Claim[*entry], len(entries))
	for i, e := range entries {
		claims[i] = fair.Claim[*entry]{Origin: e.Origin, Row: e, Weight: weight(e)}
	}
	kept, left := fair.Within(claims, limit)
	r.left = append(r.left, left...)
	return fair.Rows(kept)
}

// entryOf returns the rows of a policy; there is always one.
func (r *rows) entryOf(p *operatorpolicy.Policy, in *Input) *entry {
	e := &entry{Origin: p.Origin(), governs: p.Concerns(), pkg: strings.ReplaceAll(word(p.Package), "*", "?")}
	if p.AnyPackage {
		e.pkg = "*"
	}
	mark := "*"
	for _, c := range checksOf(p, in.Features.Semver) {
		data := c.columns(p.Exceptions().Names(checkRules[c.kind], in.Now))
		if len(quote(strings.Join(data, " "))) > maxNamespace-1<<10 {
			r.left = append(r.left, e.Origin) // Subscriptions are Manual all the same
			c.kind, data = checkManual, nil
		}
		e.rows = append(e.rows, strings.Join(append([]string{e.pkg, c.kind, e.key(), mark}, data...), " "))
		mark = "-"
	}
	return e
}

// check is one check of a policy, with its data.
type check struct {
	kind             string
	names, intervals []string
	// text is what a message has in place of the names; "" if it lists them.
	text string
}

func (c *check) columns(excepted []string) (columns []string) {
	add := func(prefix string, list []string) {
		for _, value := range list {
			columns = append(columns, prefix+word(value))
		}
	}
	add("=", c.names)
	add("~", c.intervals)
	add("!", excepted)
	if c.text != "" {
		columns = append(columns, "|"+strings.ReplaceAll(c.text, " ", "\t"))
	}
	return columns
}

// checksOf returns the checks of a policy, by name and version alone: what depends on its catalog is not forbidden, and a
// name that is listed with a digest is allowed, and not forbidden.
func checksOf(p *operatorpolicy.Policy, semver bool) (checks []check) {
	if p.Incomplete { // its contents are known to the gate soon, or only there
		return []check{{kind: checkNothing}}
	}
	if p.Unreadable() != "" {
		checks = append(checks, check{kind: checkUnreadable})
	}
	if p.Pending != "" {
		checks = append(checks, check{kind: checkPending})
	}
	names, within := p.Versions.Names(), p.VersionRange
	if p.MustNotHave {
		names = slices.DeleteFunc(names, func(name string) bool { return !p.Versions.Lists(name) })
	}
	var intervals []string
	if within != nil && semver {
		intervals = compileRange(within)
	}
	switch {
	case p.Unreadable() != "":
	case p.MustNotHave && (p.Catalog != olm.Catalog{} || len(names) == 0 && len(p.Versions.Entries) > 0):
	case p.MustNotHave && within == nil && len(names) == 0:
		checks = append(checks, check{kind: checkForbidAll})
	case p.MustNotHave && within == nil:
		checks = append(checks, check{kind: checkForbid, names: names, text: listText(names)})
	case p.MustNotHave && intervals != nil:
		scope := cmp.Or(text.Names(names, maxListed), "package "+p.Package)
		checks = append(checks, check{checkForbidIn, names, intervals, scope + " in range " + text.Quote(within.String())})
	case !p.MustNotHave:
		start := slices.DeleteFunc([]string{p.StartingCSV}, func(name string) bool { return name == "" })
		if len(names) > 0 {
			if !slices.Contains(names, p.StartingCSV) {
				names = append(names, start...)
			}
			checks = append(checks, check{kind: checkAllow, names: names, text: listText(names)})
		}
		if intervals != nil {
			checks = append(checks, check{checkAllowIn, start, intervals, text.Quote(within.String())})
		}
	}
	if len(checks) > 0 {
		return checks
	}
	if _, manual := p.WantsManual(); manual {
		return []check{{kind: checkManual}}
	}
	return []check{{kind: checkNothing}}
}

// listText returns the text for a list of names that is too long to show; "" for the others.
func listText(names []string) string {
	if len(names) <= maxListed {
		return ""
	}
	return text.Names(names, maxListed)
}

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

// compileRange returns the intervals of a version range as "LOW,=,HIGH,=". A bound is empty if there is none, and an
// equals sign follows one that belongs to the interval.
func compileRange(r *olm.VersionRange) []string {
	inclusive := map[bool]string{true: "="}
	intervals := r.Intervals()
	columns := make([]string, len(intervals))
	for i, in := range intervals {
		columns[i] = strings.Join([]string{in.Low, inclusive[in.HasLow], in.High, inclusive[in.HasHigh]}, ",")
	}
	return columns
}

// sorted returns a list in order, without duplicates.
func sorted(list []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(list)))
}
