package manifests

import (
	"strconv"
	"strings"

	yamltree "go.yaml.in/yaml/v3"
)

// tree finds the lines of fields. JSON, which is YAML as well, is parsed into one only when a line is needed.
type tree struct {
	root *yamltree.Node
	// offset is the number of lines in the file before the text of the tree.
	offset int
	text   []byte
}

func lazyTree(text []byte, line int) *tree { return &tree{text: text, offset: line - 1} }

// line returns the line in the file of the field at a path such as spec.config.env[2].name; of a field that
// stands there twice, the second; of one that is missing, the nearest field around it; else the fallback.
func (t *tree) line(path string, fallback int) int {
	if node := t.node(); node != nil {
		if line, _ := find(node, path); line > 0 {
			return t.offset + line
		}
	}
	return fallback
}

func (t *tree) node() *yamltree.Node {
	if t.root == nil && t.text != nil {
		var document yamltree.Node
		if err := yamltree.Unmarshal(t.text, &document); err == nil && len(document.Content) > 0 {
			t.root = document.Content[0]
		}
		t.text = nil
	}
	return t.root
}

// within is the tree of the value at a path such as spec.list[2].value.
func (t *tree) within(path string) *tree {
	node := t.node()
	if node != nil {
		_, node = find(node, path)
	}
	if node == nil {
		return &tree{}
	}
	return &tree{root: node, offset: t.offset}
}

// find walks along a path. It returns the line of the last key or element that exists, and the value at the end of the
// path; nil if there is none.
func find(node *yamltree.Node, path string) (line int, value *yamltree.Node) {
	line = node.Line
	for path != "" {
		if node.Kind == yamltree.AliasNode {
			node = node.Alias
		}
		var key *yamltree.Node
		switch {
		case node.Kind == yamltree.SequenceNode && path[0] == '[':
			node, path = element(node, path)
			key = node
		case node.Kind == yamltree.MappingNode:
			key, node, path = member(node, strings.TrimPrefix(path, "."))
		}
		if key == nil {
			return line, nil
		}
		line = key.Line
	}
	return line, node
}

// element takes "[2]" off a path.
func element(node *yamltree.Node, path string) (next *yamltree.Node, rest string) {
	number, rest, closed := strings.Cut(path[1:], "]")
	i, err := strconv.Atoi(number)
	if !closed || err != nil || i < 0 || i >= len(node.Content) {
		return nil, ""
	}
	return node.Content[i], rest
}

// member takes a key off a path: the longest that the mapping has, since keys may have dots in them.
func member(node *yamltree.Node, path string) (key, value *yamltree.Node, rest string) {
	for i := 0; i+1 < len(node.Content); i += 2 {
		after, ok := strings.CutPrefix(path, node.Content[i].Value)
		if !ok || after != "" && after[0] != '.' && after[0] != '[' {
			continue
		}
		if key == nil || len(after) <= len(rest) {
			key, value, rest = node.Content[i], node.Content[i+1], after
		}
	}
	return key, value, rest
}

// repeated finds the keys that stand twice in one mapping. What an alias stands for is looked at where it
// is written.
func (t *tree) repeated(at Place) (problems []Problem) {
	var walk func(node *yamltree.Node, path string)
	walk = func(node *yamltree.Node, path string) {
		switch node.Kind {
		case yamltree.SequenceNode:
			for i, child := range node.Content {
				if len(child.Content) > 0 {
					walk(child, path+"["+strconv.Itoa(i)+"]")
				}
			}
		case yamltree.MappingNode:
			seen := make(map[string]struct{}, len(node.Content)/2)
			for i := 0; i+1 < len(node.Content); i += 2 {
				key, value := node.Content[i], node.Content[i+1]
				name := joinPath(path, key.Value)
				if _, twice := seen[key.Value]; twice && key.Kind == yamltree.ScalarNode {
					problems = append(problems, problemAt(at.at(t.offset+key.Line), repeats(name)))
				}
				seen[key.Value] = struct{}{}
				if len(value.Content) > 0 {
					walk(value, name)
				}
			}
		default: // a scalar, or an alias
		}
	}
	walk(t.root, "")
	return problems
}

func joinPath(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
