package backstop

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
)

// maxShard is the size in bytes of a text in which values are looked up. The compiler of CEL reads up to 100,000 characters in an
// expression; each look-up costs a fifth of the size, of a budget of a million.
const maxShard = 16 << 10

// line is the values of one key: some lines "KEY VALUE".
type line struct {
	key    string
	values []string
}

// shards are the lines of a table, sorted, as texts in variables: each line begins and ends with a line feed.
type shards struct {
	name string
	// first are the least keys of the texts, sizes their sizes in bytes.
	first     []string
	sizes     []int
	variables []admissionv1.Variable
}

func shard(name string, all []line) shards {
	s := shards{name: name}
	var b strings.Builder
	flush := func() {
		s.sizes = append(s.sizes, b.Len())
		s.variables = append(s.variables,
			admissionv1.Variable{Name: fmt.Sprintf("%s%d", name, len(s.variables)), Expression: quote("\n" + b.String())})
		b.Reset()
	}
	for _, l := range all {
		var entry strings.Builder
		for _, value := range l.values {
			entry.WriteString(l.key + " " + value + "\n")
		}
		if b.Len() > 0 && b.Len()+entry.Len() > maxShard {
			flush()
		}
		if b.Len() == 0 {
			s.first = append(s.first, l.key)
		}
		b.WriteString(entry.String())
	}
	if b.Len() > 0 || len(all) == 0 {
		flush()
	}
	return s
}

// size is that of the text that has the lines of a key.
func (s *shards) size(key string) int {
	i, found := slices.BinarySearch(s.first, key)
	if !found {
		i--
	}
	if i < 0 {
		return 0
	}
	return s.sizes[i]
}

// of is an expression for the text that has the lines of a key, an expression.
func (s *shards) of(key string) string { return s.between(key, 0, len(s.variables)) }

func (s *shards) between(key string, from, to int) string {
	if to-from == 1 {
		return fmt.Sprintf("variables.%s%d", s.name, from)
	}
	middle := (from + to) / 2
	return fmt.Sprintf("(%s < %s ? %s : %s)", key, quote(s.first[middle]), s.between(key, from, middle), s.between(key, middle, to))
}

// values is an expression for the list of the values of a key: what precedes the first of them is on the line before.
func (s *shards) values(key string) string {
	return s.of(key) + `.split('\n' + ` + key + ` + ' ').map(v, v.split('\n', 2)[0]).filter(v, v != '')`
}

// value is an expression for the only value of a key, or ”.
func (s *shards) value(key string) string {
	return s.of(key) + `.split('\n' + ` + key + ` + ' ', 2)[?1].orValue('').split('\n', 2)[0]`
}
