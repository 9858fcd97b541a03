package gate

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// node is JSON in which an object may have a key twice.
type node struct {
	text    string // of a value that is neither object nor list
	open    byte   // '{', '[' or 0
	members []member
}

// member is one of an object, or, without a key, of a list. The key is written with its quotes.
type member struct {
	key   string
	value *node
}

// parse reads a body.
func parse(t *testing.T, body string) *node {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(body))
	decoder.UseNumber()
	var value func() *node
	value = func() *node {
		token, err := decoder.Token()
		if err != nil {
			t.Fatal(err)
		}
		delim, ok := token.(json.Delim)
		if !ok {
			text, _ := json.Marshal(token)
			return &node{text: string(text)}
		}
		n := &node{open: byte(delim)}
		for decoder.More() {
			var m member
			if delim == '{' {
				m.key = value().text
			}
			m.value = value()
			n.members = append(n.members, m)
		}
		_, _ = decoder.Token()
		return n
	}
	return value()
}

func (n *node) write(b *strings.Builder) {
	if n.open == 0 {
		b.WriteString(n.text)
		return
	}
	b.WriteByte(n.open)
	for i, m := range n.members {
		if i > 0 {
			b.WriteByte(',')
		}
		if n.open == '{' {
			b.WriteString(m.key + ":")
		}
		m.value.write(b)
	}
	b.WriteByte(n.open + 2) // the closing one, in ASCII
}

// parents are all objects and lists with members.
func (n *node) parents() []*node {
	var all []*node
	if len(n.members) > 0 {
		all = append(all, n)
	}
	for _, m := range n.members {
		all = append(all, m.value.parents()...)
	}
	return all
}

// mutate makes up to three random changes to a body.
func mutate(t *testing.T, random *rand.Rand, body string) string {
	t.Helper()
	root := parse(t, body)
	for range 1 + random.IntN(3) {
		all := root.parents()
		parent := all[random.IntN(len(all))]
		at := random.IntN(len(parent.members))
		m := parent.members[at]
		switch copied := (member{m.key, m.value}); random.IntN(8) {
		case 0, 1: // again, with another value, before or after
			copied.value = anyValue(random, all)
			parent.members = slices.Insert(parent.members, at+random.IntN(2), copied)
		case 2, 3: // again, with the key in another form
			copied.key = otherKey(random, m.key)
			if random.IntN(2) == 0 {
				copied.value = anyValue(random, all)
			}
			parent.members = slices.Insert(parent.members, at+random.IntN(2), copied)
		case 4: // again, a part of it
			if m.value.open != 0 {
				kept := &node{open: m.value.open, members: slices.Clone(m.value.members)}
				kept.members = slices.DeleteFunc(kept.members, func(member) bool { return random.IntN(2) == 0 })
				copied.value = kept
			}
			parent.members = slices.Insert(parent.members, at, copied)
		case 5:
			parent.members[at].key = otherKey(random, m.key)
		case 6:
			parent.members[at].value = anyValue(random, all)
		default: // swapped with the next
			next := (at + 1) % len(parent.members)
			parent.members[at].value, parent.members[next].value = parent.members[next].value, m.value
		}
	}
	var b strings.Builder
	root.write(&b)
	return b.String()
}

// anyValue is a value of the body without members, or a literal.
func anyValue(random *rand.Rand, all []*node) *node {
	literals := []string{"null", "true", "false", "0", "1", "-0", "1.0", "1e2", `""`, "{}", "[]", `"\ud800"`,
		"\"\xff\"", `"a\u0000"`}
	if from := all[random.IntN(len(all))]; random.IntN(2) == 0 {
		if value := from.members[random.IntN(len(from.members))].value; value.open == 0 {
			return value
		}
	}
	return &node{text: literals[random.IntN(len(literals))]}
}

// otherKey is a key with one letter in another case, as an escape, or as one that looks the same.
func otherKey(random *rand.Rand, key string) string {
	if len(key) < 3 {
		return key
	}
	at := 1 + random.IntN(len(key)-2)
	c := rune(key[at])
	if !unicode.IsLetter(c) || key[at-1] == '\\' {
		return key
	}
	other := string(unicode.ToUpper(c))
	switch random.IntN(4) {
	case 0:
		other = `\u00` + hexOf(key[at])
	case 1:
		if folded := unicode.SimpleFold(unicode.SimpleFold(c)); folded > unicode.MaxASCII {
			other = string(folded) // the long s and the sign for kelvin
		}
	}
	return key[:at] + other + key[at+1:]
}
