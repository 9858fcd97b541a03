package suggest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/opgate/opgate/cmd/opgate/manifests"
)

// source is a file with YAML documents.
type source struct {
	name string
	// before is what the file has, after has the edits.
	before, after []byte
	// documents are those of after, and sites the policies in them.
	documents []*yaml.Node
	sites     []*site
}

// readSource reads a file.
func readSource(name string) (*source, error) {
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular(): // reading a pipe would block
		return nil, fmt.Errorf("%s is not a regular file", name)
	case info.Size() > manifests.MaxInput:
		return nil, fmt.Errorf("%s is larger than %d MiB", name, manifests.MaxInput>>20)
	}
	data, err := os.ReadFile(name) //nolint:gosec // a file that the user names
	return &source{name: filepath.ToSlash(name), before: data, after: data}, err
}

// parse returns the documents of a file.
func parse(data []byte) (documents []*yaml.Node, err error) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for {
		document := &yaml.Node{}
		if err := decoder.Decode(document); errors.Is(err, io.EOF) {
			return documents, nil
		} else if err != nil {
			return nil, err
		}
		documents = append(documents, document)
	}
}

// valuesOf returns what documents stand for.
func valuesOf(documents []*yaml.Node) (values []any, err error) {
	for _, document := range documents {
		var value any
		if err := document.Decode(&value); err != nil {
			return nil, err
		}
		values = append(values, value)
	}
	return values, nil
}

// position returns where a node begins, with its anchor and tag.
func (s *source) position(n *yaml.Node) (at int) {
	for range n.Line - 1 {
		at += lineLength(s.after[at:])
	}
	for range n.Column - 1 {
		_, size := utf8.DecodeRune(s.after[at:])
		at += size
	}
	return at
}

// lineEnd returns how lines end: as the first one does.
func (s *source) lineEnd() string {
	first := s.after[:lineLength(s.after)]
	return string(first[len(bytes.TrimRight(first, "\r\n")):])
}

// endsLine reports whether a line ends at an offset.
func (s *source) endsLine(at int) bool {
	return at == len(s.after) || s.after[at] == '\r' || s.after[at] == '\n' && (at == 0 || s.after[at-1] != '\r')
}

var errPlace = errors.New("is written in a form that cannot be edited in place")

// maxPlaces bounds the places that are tried for one insertion.
const maxPlaces = 500

// insert inserts a text at the first place from an offset on, or at the first end of a line, with which the file reads
// as its documents do, in which the caller has made the change.
func (s *source) insert(from int, atLineEnd bool, text string) error {
	want, err := valuesOf(s.documents)
	if err != nil {
		return errPlace
	}
	for at, tried := from, 0; at <= len(s.after) && tried < maxPlaces; at++ {
		if atLineEnd && !s.endsLine(at) {
			continue
		}
		tried++
		edited := slices.Concat(s.after[:at], []byte(text), s.after[at:])
		documents, err := parse(edited)
		if err != nil {
			continue
		}
		if got, err := valuesOf(documents); err == nil && reflect.DeepEqual(want, got) {
			s.after, s.documents = edited, documents
			return nil
		}
	}
	return errPlace
}

// addTo adds texts to a list, behind its last element: on lines as that is on, or in brackets.
func (s *source) addTo(list *yaml.Node, texts ...string) error {
	if list.Kind != yaml.SequenceNode || len(list.Content) == 0 {
		return errPlace
	}
	last := list.Content[len(list.Content)-1]
	begin := s.position(last)
	before := string(s.after[begin-last.Column+1 : begin])
	between, isFlow := ", ", list.Style&yaml.FlowStyle != 0
	if !isFlow {
		between = s.lineEnd() + strings.Repeat(" ", list.Column-1) + "- "
		if strings.Trim(before, " ") == "-" {
			between = s.lineEnd() + before
		}
	}
	var added strings.Builder
	for _, text := range texts {
		added.WriteString(between + quotedAs(last, text))
	}
	list.Content = append(list.Content, stringNodes(texts)...)
	return s.insert(begin+len(last.Value), !isFlow, added.String())
}

// extend adds a text to the end of another one.
func (s *source) extend(n *yaml.Node, text string) error {
	if n.Kind != yaml.ScalarNode {
		return errPlace
	}
	from, kept := s.position(n)+len(n.Value), strings.TrimRight(n.Value, "\n")
	n.Value = kept + text + n.Value[len(kept):]
	return s.insert(from, false, text)
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
	list := &yaml.Node{Kind: yaml.SequenceNode, Tag: yaml.NodeTagSeq, Content: stringNodes(texts)}
	mapping.Content = append(mapping.Content, append(stringNodes([]string{name}), list)...)
	return s.insert(s.position(first), false,
		quotedAs(first, name)+": ["+strings.Join(quoted, ", ")+"]"+separator)
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

// lineBreak is what ends a line for the YAML parser.
var lineBreak = regexp.MustCompile("\r\n|[\n\r\u0085\u2028\u2029]")

// lineLength is the length of the first line with its end.
func lineLength(data []byte) int {
	if end := lineBreak.FindIndex(data); end != nil {
		return end[1]
	}
	return len(data)
}
