package backstop

import (
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
)

// A look-up costs the API server time for each byte of the text, and each variable costs it time for each write,
// whether it is evaluated or not. So texts are short, and a variable has many where its expression can choose among
// them.
const (
	// maxText is the size in bytes of a text in which values are looked up by namespace, maxDataText that of one in
	// which they are looked up by another key. A single key may have more.
	maxText, maxDataText = 2 << 10, 8 << 10
	// maxVariable is the size in bytes of the literals of a variable. The compiler of CEL reads up to 100,000
	// characters in an expression.
	maxVariable = 64 << 10
)

// byNamespace is the key of tables of which each variable chooses among several texts.
const byNamespace = "request.namespace"

// line is the values of one key: some lines "KEY VALUE".
type line struct {
	key    string
	values []string
}

// shards are the lines of a table, sorted, as texts in variables: each line begins and ends with a line feed.
type shards struct {
	// key is an expression for the key that is looked up.
	key string
	// first are the least keys of the texts.
	first []string
	// firstOf are the least keys of the variables.
	firstOf   []string
	variables []admissionv1.Variable
	// only is the expression of the only variable, which stands where it is used; "" if there are several.
	only string
}

func shard(name, key string, all []line) shards {
	s := shards{key: key}
	limit := maxDataText
	if key == byNamespace {
		limit = maxText
	}
	texts := s.split(all, limit)
	for from := 0; from < len(texts); {
		to, size := from+1, len(texts[from])
		for key == byNamespace && to < len(texts) && size+len(texts[to]) <= maxVariable {
			size += len(texts[to])
			to++
		}
		s.variables = append(s.variables, admissionv1.Variable{Name: fmt.Sprintf("%s%d", name, len(s.variables)),
			Expression: choose(key, s.first[from:to], texts[from:to])})
		s.firstOf = append(s.firstOf, s.first[from])
		from = to
	}
	if len(s.variables) == 1 {
		s.only, s.variables = s.variables[0].Expression, nil
	}
	return s
}

// split returns literals for all lines, and notes their least keys.
func (s *shards) split(all []line, limit int) []string {
	var texts []string
	var b strings.Builder
	flush := func() {
		texts = append(texts, quote("\n"+b.String()))
		b.Reset()
	}
	for _, l := range all {
		var entry strings.Builder
		for _, value := range l.values {
			entry.WriteString(l.key + " " + value + "\n")
		}
		if b.Len() > 0 && b.Len()+entry.Len() > limit {
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
	if len(all) == 0 {
		s.first = []string{""}
	}
	return texts
}

// choose is an expression for that of some expressions which has a key; first are the least keys that they have.
func choose(key string, first, expressions []string) string {
	if len(expressions) == 1 {
		return expressions[0]
	}
	middle := len(expressions) / 2
	return fmt.Sprintf("(%s < %s ? %s : %s)", key, quote(first[middle]),
		choose(key, first[:middle], expressions[:middle]),
		choose(key, first[middle:], expressions[middle:]))
}

// of is an expression for the text that has the lines of the key.
func (s *shards) of() string {
	if s.only != "" {
		return s.only
	}
	names := make([]string, len(s.variables))
	for i, v := range s.variables {
		names[i] = "variables." + v.Name
	}
	return choose(s.key, s.firstOf, names)
}

// values is an expression for the list of the values of the key, each followed by the call of a method. What precedes
// the first of them is on the line before, or nothing.
func (s *shards) values(method string) string {
	return s.of() + `.split('\n' + ` + s.key + ` + ' ').map(v, v != '' && !v.startsWith('\n'), v.split('\n', 2)[0]` +
		method + `)`
}

// value is an expression for the only value of the key, or ”.
func (s *shards) value() string {
	return s.of() + `.split('\n' + ` + s.key + ` + ' ', 2)[?1].orValue('').split('\n', 2)[0]`
}
