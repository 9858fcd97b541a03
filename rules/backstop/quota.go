package backstop

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/opgate/opgate/rules"
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

// entry is what one policy adds to the table.
type entry struct {
	policy *rules.OperatorPolicy
	rows   []string
	// checks are those of the rows, in order.
	checks []string
}

func (e *entry) namespace() string { return e.policy.Concerns() }

func (e *entry) key() string { return word(e.policy.Namespace) + "/" + word(e.policy.Name) }

// older orders the policies of one namespace. Policies of files have no time, and are ordered by name.
func (e *entry) older(other *entry) int {
	created := func(e *entry) (at int64) {
		if e.policy.Object != nil && !e.policy.Object.CreationTimestamp.IsZero() {
			at = e.policy.Object.CreationTimestamp.Unix()
		}
		return at
	}
	return cmp.Or(cmp.Compare(created(e), created(other)), cmp.Compare(e.policy.Name, other.policy.Name))
}

// fair orders entries such that a limit that is filled in this order is shared by the namespaces that the policies are
// in: a namespace of which all policies together need no more than an equal share keeps them all, whatever others
// write. One that needs more loses its newest first. A new policy has no effect on the order of others of its
// namespace.
func fair(entries []*entry, weight func(*entry) int) []*entry {
	byAge := slices.SortedFunc(slices.Values(entries), (*entry).older)
	used, needs := map[string]int{}, make(map[*entry]int, len(entries))
	for _, e := range byAge {
		used[e.policy.Namespace] += weight(e)
		needs[e] = used[e.policy.Namespace]
	}
	slices.SortStableFunc(byAge, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(needs[a], needs[b]), cmp.Compare(a.policy.Namespace, b.policy.Namespace))
	})
	return byAge
}

// bound leaves policies to the webhooks that are more than the API server evaluates for one namespace, or than an
// object holds. Each row refuses by itself, so the others hold as before.
func (t *table) bound(entries []*entry) []*entry {
	var within []*entry
	byNamespace := map[string][]*entry{}
	for _, e := range entries {
		byNamespace[e.namespace()] = append(byNamespace[e.namespace()], e)
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
			stored[accountsOf(e.namespace())] = true
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
		l.size += len(quote(e.namespace() + " " + row))
	}
	return l
}

// size is the size of what an entry adds to an empty table, in bytes of JSON.
func (t *table) size(e *entry) int { return t.sizeBeyond(e, nil) }

// sizeBeyond is size without the data and the accounts that are stored already.
func (t *table) sizeBeyond(e *entry, stored map[string]bool) int {
	byNamespace, byCheck := sizeOf(e.namespace(), e.rows), 0
	if !stored[accountsOf(e.namespace())] {
		byNamespace += sizeOf(e.namespace(), t.accounts[e.namespace()])
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
