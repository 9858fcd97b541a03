package constraint

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/blang/semver/v4"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
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

// Property types with the Kubernetes version, which OLM does not define.
const (
	typeK8s         = "olm.k8s"
	typeK8sVersion  = "olm.k8sversion"
	typeKubeVersion = "olm.kubeversion"
)

// automaticTypes are the properties with the Kubernetes version that a Set adds to the cluster.
var automaticTypes = []string{typeK8s, typeKubeVersion}

func hasType(properties []olm.Property, propertyType string) bool {
	return slices.ContainsFunc(properties, func(p olm.Property) bool { return p.Type == propertyType })
}

// properties reads spec.properties and spec.offers: any type with any value, but a known type must be well-formed,
// since OLM's resolver silently skips one that is not.
func (d *Definition) properties(spec *constraintv1.ConstraintSpec, found *faults) {
	add := func(of *document, e element) {
		if of.wellFormed(e) {
			d.Properties = append(d.Properties, olm.Property{Type: e.kind, Raw: of.raw(e.value)})
		}
	}
	text := &document{text: spec.Properties, path: "spec.properties", faults: found}
	for _, e := range text.elements(maxProperties, "any JSON value is accepted") {
		add(text, e)
	}
	if !found.room("spec.offers", text.length, len(spec.Offers), maxProperties) {
		return
	}
	for i := range spec.Offers {
		offered, path := &spec.Offers[i], fmt.Sprintf("spec.offers[%d]", i)
		value := &document{text: string(offered.Value.Raw), path: path + ".value", faults: found}
		switch {
		case offered.Type == "":
			found.add(Syntax, path+".type", `""`, "is empty")
		case len(offered.Value.Raw) == 0: // null reads as nothing
			found.add(Syntax, path+".value", "", "is missing; any value but null is accepted")
		default:
			if n := value.parse(); n != nil {
				add(value, element{path: path, index: i, node: n, kind: offered.Type, value: n})
			}
		}
	}
}

func (d *document) wellFormed(e element) bool {
	before := len(*d.faults)
	path := e.path + ".value"
	switch e.kind {
	case olm.TypePackage:
		d.fields(e.value, path, "packageName", "version")
		if v := e.value.get("version"); v != nil && v.kind == stringNode && v.text != "" {
			if _, err := semver.Parse(v.text); err != nil {
				d.shapeFault(path+".version", v.text, "is not a semantic version such as 1.2.3")
			}
		}
	case olm.TypeGVK:
		d.fields(e.value, path, "group", "version", "kind")
	case olm.TypeLabel:
		d.fields(e.value, path, "label")
	case typeK8s, typeK8sVersion, typeKubeVersion:
		d.fields(e.value, path, "version")
		if v := e.value.get("version"); v != nil && v.kind == stringNode && v.text != "" {
			if _, err := semver.ParseTolerant(v.text); err != nil {
				d.shapeFault(path+".version", v.text, "is not a version such as 1.36 or 1.36.3")
			}
		}
	case olm.TypeMaxOpenShift:
		if e.value.kind != stringNode {
			d.shapeFault(path, string(d.raw(e.value)),
				fmt.Sprintf(`is %s; a string such as "4.19" is required`, e.value.kind))
		} else if _, problem := minorVersion(e.value.text); problem != "" {
			d.shapeFault(path, e.value.text, problem)
		}
	}
	return len(*d.faults) == before
}

// fields requires an object with exactly these fields, all of them non-empty strings.
func (d *document) fields(n *node, path string, names ...string) {
	want := `{"` + strings.Join(names, `": "...", "`) + `": "..."}`
	if n.kind != objectNode {
		d.shapeFault(path, string(d.raw(n)), fmt.Sprintf("is %s; %s is required", n.kind, want))
		return
	}
	for _, name := range names {
		switch v := n.get(name); {
		case v == nil:
			d.shapeFault(path+"."+name, "", "is missing; "+want+" is required")
		case v.kind != stringNode:
			d.shapeFault(path+"."+name, string(d.raw(v)), fmt.Sprintf("is %s; a string is required", v.kind))
		case v.text == "":
			d.shapeFault(path+"."+name, `""`, "is empty; a string is required")
		}
	}
	for i, key := range n.keys {
		if !slices.Contains(names, key) {
			d.shapeFault(path+"."+text.Truncate(key, valueShown), string(d.raw(n.children[i])),
				"is not known; "+want+" is required")
		}
	}
}

func (d *document) shapeFault(path, value, message string) {
	d.faults.add(PropertyShape, path, value, message)
}
