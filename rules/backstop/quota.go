package backstop

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/opgate/opgate/rules/state"
)

// The API server compiles no expression of more than 100,000 characters, and spends no more than a million units on one
// evaluation, of which each row of a namespace takes a fifth of the sizes of its data and of the text in which that is
// looked up. What policies have beyond that is left to the webhooks: it must not keep the API server from evaluating
// what other policies say, nor OLM from writing (threat O51).
const (
	maxLine = 64 << 10
	maxRows = 200
	maxCost = 400_000
	// maxEverywhere bounds the policies that count in every namespace: there is one more where a stored one cannot be
	// read.
	maxEverywhere = 20
)

// maxTable bounds the table in bytes of JSON. With the other expressions an object stays below 1 MiB: etcd takes 1.5
// MiB, including managed fields and status.
const maxTable = 896 << 10

// origin is the policy or the Constraint that something in a table is of.
type origin struct {
	// namespace is empty for a Constraint.
	namespace, name string
	// created is in Unix seconds; 0 if not known, as in files, and for Constraints.
	created int64
}

func originOf(p *state.OperatorPolicy) origin {
	o := origin{namespace: p.Namespace, name: p.Name}
	if p.Object != nil && !p.Object.CreationTimestamp.IsZero() {
		o.created = p.Object.CreationTimestamp.Unix()
	}
	return o
}

func (o origin) from() origin { return o }

// key is NAMESPACE/NAME of a policy, and NAME of a Constraint.
func (o origin) key() string {
	if o.namespace == "" {
		return word(o.name)
	}
	return word(o.namespace) + "/" + word(o.name)
}

// entry is what one policy adds to the table.
type entry struct {
	origin
	// governs is the namespace that the policy governs something in.
	governs string
	rows    []string
	// checks are those of the rows, in order.
	checks []string
}

// fair orders entries such that a limit that is filled in this order is shared by the namespaces that the policies are
// in, and by all Constraints as by one: a namespace of which all policies together need no more than an equal share
// keeps them all, whatever others write. One that needs more loses its newest first. A new policy has no effect on the
// order of others of its namespace.
func fair[E interface {
	comparable
	from() origin
}](entries []E, weight func(E) int) []E {
	byAge := slices.Clone(entries)
	slices.SortStableFunc(byAge, func(a, b E) int {
		return cmp.Or(cmp.Compare(a.from().created, b.from().created), cmp.Compare(a.from().name, b.from().name))
	})
	used, needs := map[string]int{}, make(map[E]int, len(entries))
	for _, e := range byAge {
		used[e.from().namespace] += weight(e)
		needs[e] = used[e.from().namespace]
	}
	slices.SortStableFunc(byAge, func(a, b E) int {
		return cmp.Or(cmp.Compare(needs[a], needs[b]), cmp.Compare(a.from().namespace, b.from().namespace))
	})
	return byAge
}

// bound leaves policies to the webhooks that are more than the API server evaluates for one namespace, or than an
// object holds. Each row refuses by itself, so the others hold as before.
func (t *table) bound(entries []*entry) []*entry {
	var within []*entry
	byNamespace := map[string][]*entry{}
	for _, e := range entries {
		byNamespace[e.governs] = append(byNamespace[e.governs], e)
	}
	for _, of := range byNamespace {
		var total load
		for _, e := range fair(of, func(e *entry) int { return t.load(e).share() }) {
			if next := total.plus(t.load(e)); next.share() <= whole {
				total, within = next, append(within, e)
			}
		}
	}
	kept := map[*entry]bool{}
	size, stored := 0, map[string]bool{}
	for _, e := range fair(within, t.size) {
		if more := t.sizeBeyond(e, stored); size+more <= maxTable {
			size, kept[e] = size+more, true
			for _, check := range e.checks {
				stored[check] = true
			}
			stored[accountsOf(e.governs)] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(entries), func(e *entry) bool {
		if !kept[e] {
			t.left = append(t.left, e.key())
		}
		return !kept[e]
	})
}

// load is what rows take of what the API server evaluates for one namespace.
type load struct{ rows, cost, size int }

// whole is the share of everything.
const whole = 1 << 20

func (l load) plus(other load) load {
	return load{l.rows + other.rows, l.cost + other.cost, l.size + other.size}
}

// share is the part of the limits that is taken, of whole.
func (l load) share() int {
	return max(l.rows*whole/maxRows, l.cost*whole/maxCost, l.size*whole/maxLine)
}

// load does not depend on other policies: the text that has the data of a check has up to maxDataText, or that data
// alone.
func (t *table) load(e *entry) load {
	l := load{rows: len(e.rows)}
	for i, row := range e.rows {
		data := len(strings.Join(t.data[e.checks[i]], ""))
		l.cost += (max(maxDataText, data) + data) / 5
		l.size += len(quote(e.governs + " " + row))
	}
	return l
}

// size is the size of what an entry adds to an empty table, in bytes of JSON.
func (t *table) size(e *entry) int { return t.sizeBeyond(e, nil) }

// sizeBeyond is size without the data and the accounts that are stored already.
func (t *table) sizeBeyond(e *entry, stored map[string]bool) int {
	byNamespace, byCheck := sizeOf(e.governs, e.rows), 0
	if !stored[accountsOf(e.governs)] {
		byNamespace += sizeOf(e.governs, t.accounts[e.governs])
	}
	for _, check := range e.checks {
		if !stored[check] {
			byCheck += sizeOf(check, t.data[check])
		}
	}
	return byNamespace*9/8 + byCheck // texts are short by namespace, and an expression chooses among them
}

// accountsOf is the key, beside those of checks, of the accounts of a namespace.
func accountsOf(namespace string) string { return "/" + namespace }

func sizeOf(key string, values []string) int {
	size := 0
	for _, value := range values {
		raw, _ := json.Marshal(quote(key + " " + value + "\n")) // a string
		size += len(raw)
	}
	return size
}
