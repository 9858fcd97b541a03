package backstop

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
)

// maxText is the size in bytes of the largest text: with what a match condition has beside it, it is less than the
// 100,000 characters that the compiler of CEL reads.
const maxText = 88 << 10

// table is some values by key, as text in which they are looked up: a literal list or map of this size would take the
// API server seconds to compile.
type table struct {
	// key is an expression for the key that is looked up.
	key string
	// text is an expression for the text with the lines "KEY VALUE" of the key, each after a line feed.
	text      string
	variables []admissionv1.Variable
}

// newTable returns a table. What does not fit into one text is in variables, whose names begin with name.
func newTable(name, key string, values map[string][]string) table {
	t := table{key: key}
	texts, first := [][]string{{"\n"}}, []string{""}
	last, size := 0, 0
	for _, k := range slices.Sorted(maps.Keys(values)) {
		lines := ""
		for _, value := range values[k] {
			lines += k + " " + value + "\n"
		}
		quoted := len(quote(lines))
		if size > 0 && size+quoted > maxText {
			texts, first, size, last = append(texts, []string{"\n"}), append(first, k), 0, last+1
		}
		size += quoted
		texts[last] = append(texts[last], lines)
	}
	if last == 0 {
		t.text = quote(strings.Join(texts[0], ""))
		return t
	}
	for i, text := range slices.Backward(texts) {
		v := admissionv1.Variable{Name: fmt.Sprintf("%s%d", name, i), Expression: quote(strings.Join(text, ""))}
		t.variables = append(t.variables, v)
		if t.text == "" {
			t.text = "variables." + v.Name
		} else {
			t.text = fmt.Sprintf("%s < %s ? variables.%s : %s", key, quote(first[i+1]), v.Name, t.text)
		}
	}
	return t
}

// values is an expression for the list of the values of the key. What precedes the first of them is nothing, or lines of
// other keys.
func (t table) values() string {
	return "(" + t.text + `).split('\n' + ` + t.key + ` + ' ').map(v, v != '' && !v.startsWith('\n'), v.split('\n', 2)[0])`
}

// sizeOf is the size of the lines of a key, in bytes of JSON.
func sizeOf(key string, values []string) int {
	size := 0
	for _, value := range values {
		raw, _ := json.Marshal(quote(key + " " + value + "\n")) // a string
		size += len(raw)
	}
	return size
}
