package suggest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/opgate/opgate/cmd/opgate/manifests"
)

// source is a file with YAML documents, and what is inserted into it. Its bytes stay as they are otherwise.
type source struct {
	name string
	data []byte
	// lines are the offsets at which lines begin, as the parser counts them.
	lines     []int
	documents []*yaml.Node
	// insertions are texts by the offset at which each is inserted.
	insertions map[int]string
	// after is the text with the insertions, once it is known.
	after []byte
	// undo are what takes back what was changed since the last edit that was complete.
	undo []func()
}

// readSource reads and parses a file.
func readSource(name string) (*source, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() { // reading a pipe would block
		return nil, fmt.Errorf("%s is not a regular file", name)
	}
	if info.Size() > manifests.MaxInput {
		return nil, fmt.Errorf("%s is larger than %d MiB", name, manifests.MaxInput>>20)
	}
	data, err := os.ReadFile(name) //nolint:gosec // a file that the user names
	if err != nil {
		return nil, err
	}
	return parseSource(name, data)
}

func parseSource(name string, data []byte) (*source, error) {
	s := &source{name: filepath.ToSlash(name), data: data, lines: []int{0}, insertions: map[int]string{}}
	for at := 0; at < len(data); {
		r, size := utf8.DecodeRune(data[at:])
		at += size
		switch r {
		case '\r':
			if bytes.HasPrefix(data[at:], []byte("\n")) {
				continue // both are one line end
			}
			fallthrough
		case '\n', '\u0085', '\u2028', '\u2029':
			s.lines = append(s.lines, at)
		}
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for {
		document := &yaml.Node{}
		err := decoder.Decode(document)
		if errors.Is(err, io.EOF) {
			return s, nil
		}
		if err != nil {
			return s, err
		}
		s.documents = append(s.documents, document)
	}
}

// position returns where a node begins.
func (s *source) position(n *yaml.Node) int {
	at := s.lines[n.Line-1]
	for range n.Column - 1 {
		_, size := utf8.DecodeRune(s.data[at:])
		at += size
	}
	return at
}

// offset returns where the text of a node begins, behind its anchor and its tag.
func (s *source) offset(n *yaml.Node) int {
	at := s.position(n)
	for at < len(s.data) && (s.data[at] == '&' || s.data[at] == '!') {
		word := bytes.IndexAny(s.data[at:], " \t\r\n")
		if word < 0 {
			break
		}
		at += word
		at += len(s.data[at:]) - len(bytes.TrimLeft(s.data[at:], " \t"))
	}
	return at
}

// lineAt returns the number of the line with an offset, from 0.
func (s *source) lineAt(offset int) int {
	i, found := slices.BinarySearch(s.lines, offset)
	if found {
		return i
	}
	return i - 1
}

// line returns a line with its end; the one behind the last is empty.
func (s *source) line(i int) []byte {
	if i+1 < len(s.lines) {
		return s.data[s.lines[i]:s.lines[i+1]]
	}
	return s.data[s.lines[i]:]
}

// lineEnd returns how lines end: as the first one does.
func (s *source) lineEnd() string {
	first := s.line(0)
	return string(first[len(bytes.TrimRight(first, "\r\n")):])
}

var errPlace = errors.New("is written in a form that cannot be edited in place")

// end returns the offset behind a scalar or an alias. column is that of the collection that it is in, from 0: a block
// scalar or a plain one of several lines ends before the next line that begins there.
func (s *source) end(n *yaml.Node, column int) (int, error) {
	at := s.offset(n)
	rest := s.data[at:]
	switch {
	case n.Kind == yaml.AliasNode:
		return at + 1 + len(n.Value), nil
	case n.Kind != yaml.ScalarNode:
		return 0, errPlace
	case n.Style&yaml.SingleQuotedStyle != 0:
		for i := 1; i < len(rest); i++ {
			if rest[i] != '\'' {
				continue
			}
			if i+1 < len(rest) && rest[i+1] == '\'' {
				i++
				continue
			}
			return at + i + 1, nil
		}
		return 0, errPlace
	case n.Style&yaml.DoubleQuotedStyle != 0:
		for i := 1; i < len(rest); i++ {
			switch rest[i] {
			case '\\':
				i++
			case '"':
				return at + i + 1, nil
			}
		}
		return 0, errPlace
	case n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) == 0 && bytes.HasPrefix(rest, []byte(n.Value)):
		return at + len(n.Value), nil
	}
	last := s.lineAt(at)
	for i := last + 1; i < len(s.lines); i++ {
		text := bytes.TrimRight(s.line(i), " \t\r\n")
		if len(text) == 0 {
			continue
		}
		if len(text)-len(bytes.TrimLeft(text, " ")) <= column {
			break
		}
		last = i
	}
	return s.lines[last] + len(bytes.TrimRight(s.line(last), " \t\r\n")), nil
}

// insert inserts a text, behind what is inserted at the same place.
func (s *source) insert(at int, text string) {
	before := s.insertions[at]
	s.undo = append(s.undo, func() { s.insertions[at] = before })
	s.insertions[at] += text
}

// change changes a node as the insertions do.
func (s *source) change(n *yaml.Node, value string, added ...*yaml.Node) {
	before := *n
	s.undo = append(s.undo, func() { *n = before })
	n.Value, n.Content = value, append(slices.Clip(n.Content), added...)
}

// revert takes back what was changed since the last edit that was complete.
func (s *source) revert() {
	for _, undo := range slices.Backward(s.undo) {
		undo()
	}
	s.undo = nil
}

// edited returns the text with the insertions. The nodes have been changed in the same way: it is an error if the text
// reads otherwise.
func (s *source) edited() ([]byte, error) {
	if len(s.insertions) == 0 {
		return s.data, nil
	}
	var b bytes.Buffer
	from := 0
	for _, at := range slices.Sorted(maps.Keys(s.insertions)) {
		b.Write(s.data[from:at])
		b.WriteString(s.insertions[at])
		from = at
	}
	b.Write(s.data[from:])
	again, err := parseSource(s.name, b.Bytes())
	if err != nil || len(again.documents) != len(s.documents) {
		return nil, errPlace
	}
	for i := range s.documents {
		var want, got any
		if s.documents[i].Decode(&want) != nil || again.documents[i].Decode(&got) != nil || !reflect.DeepEqual(want, got) {
			return nil, errPlace
		}
	}
	return b.Bytes(), nil
}

// addTo adds texts to a list.
func (s *source) addTo(list *yaml.Node, texts ...string) error {
	if list.Kind != yaml.SequenceNode || len(list.Content) == 0 {
		return errPlace
	}
	last := list.Content[len(list.Content)-1]
	if last.Line == 0 { // it was added just now
		return errPlace
	}
	quoted := make([]string, len(texts))
	for i, text := range texts {
		quoted[i] = quotedAs(last, text)
	}
	add := s.addLines
	if list.Style&yaml.FlowStyle != 0 {
		add = s.addInBrackets
	}
	if err := add(list, last, quoted); err != nil {
		return err
	}
	s.change(list, "", stringNodes(texts)...)
	return nil
}

// addLines inserts texts behind the last element of a list, each on a line as that one is.
func (s *source) addLines(list, last *yaml.Node, texts []string) error {
	end, err := s.end(last, list.Column-1)
	if err != nil {
		return err
	}
	dash := strings.Repeat(" ", list.Column-1) + "- "
	if before := string(s.data[s.lines[last.Line-1]:s.offset(last)]); strings.Trim(before, " ") == "-" {
		dash = before
	}
	line := s.lineAt(end)
	at := s.lines[line] + len(bytes.TrimRight(s.line(line), "\r\n"))
	for _, text := range texts {
		s.insert(at, s.lineEnd()+dash+text)
	}
	return nil
}

// addInBrackets inserts texts behind the last element of a list in brackets: on the same line, or on lines of their own
// if that one has one.
func (s *source) addInBrackets(_, last *yaml.Node, texts []string) error {
	end, err := s.end(last, 0)
	if err != nil {
		return err
	}
	start, line := s.offset(last), s.lineAt(end)
	text := s.line(line)
	indent := text[:len(text)-len(bytes.TrimLeft(text, " \t"))]
	comma, next := s.behind(end)
	if s.lines[line]+len(indent) != start { // it is beside others
		separator := ", "
		if start > 0 && s.data[start-1] == ',' {
			separator = ","
		}
		joined := strings.Join(texts, separator)
		if comma > 0 {
			s.insert(comma, separator[1:]+joined+",")
		} else {
			s.insert(end, separator+joined)
		}
		return nil
	}
	between := s.lineEnd() + string(indent)
	joined := between + strings.Join(texts, ","+between)
	if comma > 0 {
		joined += ","
	} else {
		s.insert(end, ",")
	}
	if s.lineAt(next) == line {
		s.insert(max(end, comma), joined)
	} else {
		s.insert(s.lines[line]+len(bytes.TrimRight(text, "\r\n")), joined)
	}
	return nil
}

// behind returns the offset behind the comma that follows an element, 0 if none does, and that of what follows then.
func (s *source) behind(end int) (comma, next int) {
	for next = end; next < len(s.data); next++ {
		switch s.data[next] {
		case ' ', '\t', '\r', '\n':
		case '#':
			next += max(0, bytes.IndexByte(s.data[next:], '\n'))
		case ',':
			comma = next + 1
		default:
			return comma, next
		}
	}
	return comma, next
}

// extend adds a text to the end of another one.
func (s *source) extend(n *yaml.Node, column int, text string) error {
	end, err := s.end(n, column)
	if err != nil || n.Kind != yaml.ScalarNode {
		return errPlace
	}
	kept := n.Value
	switch {
	case n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0:
		end--
	case n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		kept = strings.TrimRight(n.Value, "\n")
	}
	s.insert(end, text)
	s.change(n, kept+text+n.Value[len(kept):])
	return nil
}

// addField adds a field with a list of texts to a mapping that has others.
func (s *source) addField(mapping *yaml.Node, name string, texts ...string) error {
	if mapping.Kind != yaml.MappingNode || len(mapping.Content) == 0 {
		return errPlace
	}
	first := mapping.Content[0]
	quoted := make([]string, len(texts))
	for i, text := range texts {
		quoted[i] = quotedAs(first, text)
	}
	separator := ", "
	if mapping.Style&yaml.FlowStyle == 0 {
		separator = s.lineEnd() + strings.Repeat(" ", first.Column-1)
	}
	s.insert(s.position(first), quotedAs(first, name)+": ["+strings.Join(quoted, ", ")+"]"+separator)
	list := &yaml.Node{Kind: yaml.SequenceNode, Tag: yaml.NodeTagSeq, Content: stringNodes(texts)}
	s.change(mapping, "", append(stringNodes([]string{name}), list)...)
	return nil
}

func stringNodes(texts []string) []*yaml.Node {
	nodes := make([]*yaml.Node, len(texts))
	for i, text := range texts {
		nodes[i] = &yaml.Node{Kind: yaml.ScalarNode, Tag: yaml.NodeTagString, Value: text}
	}
	return nodes
}

// quotedAs returns a text in the quotes of another one. It has no character that is escaped.
func quotedAs(n *yaml.Node, text string) string {
	switch {
	case n.Style&yaml.SingleQuotedStyle != 0:
		return "'" + text + "'"
	case n.Style&yaml.DoubleQuotedStyle != 0:
		return `"` + text + `"`
	}
	return text
}
