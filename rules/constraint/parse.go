package constraint

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/opgate/opgate/internal/text"
)

// node is a JSON value with positions, which decoding into structs would lose: where an element begins and ends (its
// size and raw text), the case of each key, and duplicate keys.
type node struct {
	kind       nodeKind
	start, end int
	text       string // of a string or a number
	keys       []string
	children   []*node // values of the keys, or elements
}

type nodeKind int

const (
	nullNode nodeKind = iota
	boolNode
	numberNode
	stringNode
	listNode
	objectNode
)

func (k nodeKind) String() string {
	return [...]string{"null", "a boolean", "a number", "a string", "a list", "an object"}[k]
}

// get returns the value of a key, or nil.
func (n *node) get(key string) *node {
	if i := slices.Index(n.keys, key); i >= 0 {
		return n.children[i]
	}
	return nil
}

// document is one JSON text of a definition.
type document struct {
	text, path string
	faults     *faults
	full       bool // a limit stopped reading
	rules      int  // bytes of CEL so far
	length     int  // of the list, what cannot be read included
}

// raw returns an element as written.
func (d *document) raw(n *node) json.RawMessage { return json.RawMessage(d.text[n.start:n.end]) }

// tree returns an element for encoding.
func (d *document) tree(n *node) any {
	switch n.kind {
	case objectNode:
		members := make(map[string]any, len(n.keys))
		for i, key := range n.keys {
			members[key] = d.tree(n.children[i])
		}
		return members
	case listNode:
		elements := make([]any, len(n.children))
		for i, child := range n.children {
			elements[i] = d.tree(child)
		}
		return elements
	default:
		return d.raw(n)
	}
}

// place describes an offset in a message.
func (d *document) place(offset int) string {
	offset = max(0, min(offset, len(d.text)))
	before := d.text[:offset]
	return fmt.Sprintf("line %d, column %d", 1+strings.Count(before, "\n"),
		1+utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:]))
}

// parse parses the text; nil with a fault if it is not JSON or nested too deep.
func (d *document) parse() *node {
	if !utf8.ValidString(d.text) {
		d.faults.add(Syntax, d.path, "", "is not valid UTF-8")
		return nil
	}
	var whole json.RawMessage
	if err := json.Unmarshal([]byte(d.text), &whole); err != nil {
		where := ""
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			if strings.Contains(syntax.Error(), "exceeded max depth") {
				d.tooDeep(int(syntax.Offset))
				return nil
			}
			where = " at " + d.place(int(syntax.Offset)-1)
		}
		d.faults.add(Syntax, d.path, "",
			fmt.Sprintf("is not JSON%s: %s; a list such as [{\"type\": ..., \"value\": ...}] is expected", where, err))
		return nil
	}
	decoder := json.NewDecoder(strings.NewReader(d.text))
	decoder.UseNumber()
	n := d.next(decoder, d.path, 0)
	if d.full {
		return nil
	}
	return n
}

func (d *document) tooDeep(offset int) {
	d.full = true
	d.faults.add(Size, d.path, "", fmt.Sprintf("is nested deeper than %d levels at %s", maxDepth, d.place(offset)))
}

// next reads one value. The text is known to be valid JSON.
func (d *document) next(decoder *json.Decoder, path string, depth int) *node {
	n := &node{start: d.skip(int(decoder.InputOffset()))}
	token, err := decoder.Token()
	if err != nil {
		d.full = true
		d.faults.add(Syntax, path, "", fmt.Sprintf("cannot be read: %s", err))
		return n
	}
	switch t := token.(type) {
	case json.Delim:
		if depth >= maxDepth {
			d.tooDeep(n.start)
			return n
		}
		if t == '[' {
			n.kind = listNode
			for decoder.More() && !d.full {
				n.children = append(n.children, d.next(decoder, fmt.Sprintf("%s[%d]", path, len(n.children)), depth+1))
			}
		} else {
			n.kind = objectNode
			d.object(decoder, n, path, depth)
		}
		if !d.full {
			_, _ = decoder.Token() // the closing bracket
		}
	case string:
		n.kind, n.text = stringNode, t
	case json.Number:
		n.kind, n.text = numberNode, t.String()
	case bool:
		n.kind = boolNode
	}
	n.end = int(decoder.InputOffset())
	return n
}

func (d *document) object(decoder *json.Decoder, n *node, path string, depth int) {
	seen := map[string]bool{}
	for decoder.More() && !d.full {
		at := d.skip(int(decoder.InputOffset()))
		token, _ := decoder.Token()
		key, _ := token.(string)
		child := d.next(decoder, path+"."+text.Truncate(key, valueShown), depth+1)
		if seen[key] {
			d.faults.add(Syntax, path+"."+text.Truncate(key, valueShown), "",
				"is repeated at "+d.place(at)+"; a key may appear once")
			continue
		}
		seen[key] = true
		n.keys = append(n.keys, key)
		n.children = append(n.children, child)
	}
}

// skip returns the offset of the next value after separators and white space.
func (d *document) skip(offset int) int {
	for offset < len(d.text) && strings.IndexByte(" \t\r\n,:", d.text[offset]) >= 0 {
		offset++
	}
	return offset
}

// elements returns the entries of the document's list, each of which must be {type, value}.
func (d *document) elements(limit int, valueMeans string) []element {
	if strings.TrimSpace(d.text) == "" {
		return nil
	}
	n := d.parse()
	if n == nil {
		return nil
	}
	if n.kind != listNode {
		d.faults.add(Syntax, d.path, "", fmt.Sprintf(`is %s; a list such as [{"type": ..., "value": ...}] is expected`,
			n.kind))
		return nil
	}
	if len(n.children) > limit {
		d.faults.add(Size, d.path, "", fmt.Sprintf("has %d elements, the limit is %d; use several Constraint objects",
			len(n.children), limit))
		return nil
	}
	d.length = len(n.children)
	var all []element
	for i, child := range n.children {
		e := element{path: fmt.Sprintf("%s[%d]", d.path, i), index: i, node: child}
		if child.kind != objectNode {
			d.faults.add(Syntax, e.path, string(d.raw(child)),
				fmt.Sprintf(`is %s; {"type": ..., "value": ...} is expected`, child.kind))
			continue
		}
		d.onlyKeys(child, e.path, "type", "value")
		kind, ok := d.str(child, e.path, "type", true)
		e.kind, e.value = kind, child.get("value")
		if e.value == nil {
			d.faults.add(Syntax, e.path+".value", "", "is missing; "+valueMeans)
		}
		if ok && e.value != nil {
			all = append(all, e)
		}
	}
	return all
}

// element is one entry of a definition's lists.
type element struct {
	path  string
	index int
	node  *node
	kind  string
	value *node
}

// onlyKeys adds a fault for each unknown key.
func (d *document) onlyKeys(n *node, path string, known ...string) {
	for i, key := range n.keys {
		if !slices.Contains(known, key) {
			d.faults.add(Syntax, path+"."+text.Truncate(key, valueShown), string(d.raw(n.children[i])),
				"is not known; known are "+strings.Join(known, ", "))
		}
	}
}

// str reads a string; a required one must not be empty.
func (d *document) str(n *node, path, key string, required bool) (string, bool) {
	v := n.get(key)
	switch {
	case v == nil && required:
		d.faults.add(Syntax, path+"."+key, "", "is missing; a string is required")
		return "", false
	case v == nil:
		return "", true
	case v.kind != stringNode:
		d.faults.add(Syntax, path+"."+key, string(d.raw(v)), fmt.Sprintf("is %s; a string is required", v.kind))
		return "", false
	case v.text == "" && required:
		d.faults.add(Syntax, path+"."+key, `""`, "is empty")
		return "", false
	}
	return v.text, true
}
