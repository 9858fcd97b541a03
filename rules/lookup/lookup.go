// Package lookup finds what the templates of a policy look up, from their text alone.
package lookup

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"text/template/parse"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Any is the group and the kind of a Lookup whose kind is computed.
const Any = "*"

// maxText bounds the text that is parsed, in bytes: parsing recurses as deep as the text is nested. Longer text counts
// as not understood.
const maxText = 64 << 10

// Lookup is one object that templates look up, by name and, if its kind has namespaces, namespace. Without a name it is
// every object of the kind, in all namespaces: the template lists them, or computes the name or the namespace.
type Lookup struct{ Group, Kind, Namespace, Name string }

// Resource returns the resource of the kind by the usual plural, "*" for any kind. A kind with another plural cannot be
// looked up.
func (l Lookup) Resource() string {
	if l.Kind == Any {
		return Any
	}
	plural, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Group: l.Group, Kind: l.Kind})
	return plural.Resource
}

// Covers reports whether a right to get l is one to get an object, or, without a name, all objects of a resource.
func (l Lookup) Covers(resource schema.GroupResource, namespace, name string) bool {
	switch {
	case l.Kind == Any:
		return true
	case l.Group != resource.Group || l.Resource() != resource.Resource:
		return false
	}
	return l.Name == "" || l.Name == name && l.Namespace == namespace
}

// functions are those that look up, with how many of their first arguments say what.
var functions = map[string]struct {
	arguments int
	group     string
	kind      string // "" if the first two arguments are apiVersion and kind
}{
	"lookup":                 {arguments: 4},
	"fromConfigMap":          {arguments: 2, kind: "ConfigMap"},
	"copyConfigMapData":      {arguments: 2, kind: "ConfigMap"},
	"fromClusterClaim":       {arguments: 1, kind: "ClusterClaim", group: "cluster.open-cluster-management.io"},
	"lookupClusterClaim":     {arguments: 1, kind: "ClusterClaim", group: "cluster.open-cluster-management.io"},
	"getNodesWithExactRoles": {kind: "Node"},
	"hasNodesWithExactRoles": {kind: "Node"},
}

// anything is what a template may look up that is not understood.
var anything = Lookup{Group: Any, Kind: Any}

// Of returns what the template text in a value, as it is encoded in JSON, looks up, sorted and each once. Text that
// names a function that looks up and is not understood counts as a lookup of any kind.
func Of(value any) []Lookup {
	raw, err := json.Marshal(value)
	if err != nil {
		return []Lookup{anything}
	}
	var decoded any
	if json.Unmarshal(raw, &decoded) != nil {
		return []Lookup{anything}
	}
	found := map[Lookup]bool{}
	collect(decoded, found)
	return slices.SortedFunc(maps.Keys(found), func(a, b Lookup) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Name, b.Name))
	})
}

func collect(value any, found map[Lookup]bool) {
	switch value := value.(type) {
	case string:
		ofText(value, found)
	case []any:
		for _, item := range value {
			collect(item, found)
		}
	case map[string]any:
		for name, item := range value {
			ofText(name, found)
			collect(item, found)
		}
	}
}

// ofText adds the lookups of one string. Policies are resolved in larger parts, so a string may be only a part of a
// template: then it does not parse.
func ofText(text string, found map[Lookup]bool) {
	if !named(text) || strings.Contains(text, "{{hub") { // a part with hub templates is not resolved
		return
	}
	if len(text) > maxText {
		found[anything] = true
		return
	}
	tree := parse.New("policy")
	tree.Mode = parse.SkipFuncCheck
	trees := map[string]*parse.Tree{}
	if _, err := tree.Parse(text, "{{", "}}", trees); err != nil || len(trees) > 1 {
		found[anything] = true
		return
	}
	w := walk{found}
	w.list(tree.Root)
}

// named reports whether text names a function that looks up.
func named(text string) bool {
	for name := range functions {
		if strings.Contains(text, name) {
			return true
		}
	}
	return false
}

// walk adds the lookups of nodes.
type walk struct{ found map[Lookup]bool }

func (w walk) list(list *parse.ListNode) {
	if list == nil {
		return
	}
	for _, node := range list.Nodes {
		w.node(node)
	}
}

func (w walk) node(node parse.Node) {
	switch node := node.(type) {
	case *parse.ActionNode:
		w.pipe(node.Pipe)
	case *parse.IfNode:
		w.branch(&node.BranchNode)
	case *parse.WithNode:
		w.branch(&node.BranchNode)
	case *parse.RangeNode:
		w.branch(&node.BranchNode)
	case *parse.PipeNode:
		w.pipe(node)
	case *parse.ChainNode:
		w.node(node.Node)
	case *parse.IdentifierNode: // a call without arguments, as an argument of another
		if _, looks := functions[node.Ident]; looks {
			w.found[anything] = true
		}
	case *parse.TextNode, *parse.CommentNode, *parse.BreakNode, *parse.ContinueNode, *parse.BoolNode, *parse.DotNode,
		*parse.FieldNode, *parse.NilNode,
		*parse.NumberNode, *parse.StringNode, *parse.VariableNode:
	default:
		w.found[anything] = true
	}
}

func (w walk) branch(branch *parse.BranchNode) {
	w.pipe(branch.Pipe)
	w.list(branch.List)
	w.list(branch.ElseList)
}

func (w walk) pipe(pipe *parse.PipeNode) {
	if pipe == nil {
		return
	}
	for i, c := range pipe.Cmds {
		arguments := c.Args
		if first, ok := arguments[0].(*parse.IdentifierNode); ok {
			arguments = arguments[1:]
			if f, looks := functions[first.Ident]; looks {
				w.found[call(f.group, f.kind, f.arguments, arguments, i > 0)] = true
			}
		}
		for _, argument := range arguments {
			w.node(argument)
		}
	}
}

// call returns what one call looks up. If the last argument is piped to it, that is computed.
func call(group, kind string, number int, arguments []parse.Node, piped bool) Lookup {
	text := make([]string, number)
	literal := make([]bool, number)
	for i := range min(number, len(arguments)) {
		if s, ok := arguments[i].(*parse.StringNode); ok {
			text[i], literal[i] = s.Text, true
		}
	}
	if len(arguments) < number && !piped {
		return anything // it fails
	}
	if kind == "" {
		version, err := schema.ParseGroupVersion(text[0])
		if err != nil || !literal[0] || !literal[1] || text[0] == "" || !isKind(text[1]) {
			return anything
		}
		group, kind, text, literal = version.Group, text[1], text[2:], literal[2:]
	}
	l := Lookup{Group: group, Kind: kind}
	namespace, name := "", 0
	if len(text) == 2 {
		namespace, name = text[0], 1
	}
	if slices.Contains(literal, false) || len(text) == 0 || text[name] == "" {
		return l
	}
	l.Namespace, l.Name = namespace, text[name]
	return l
}

func isKind(kind string) bool { return len(validation.IsDNS1035Label(strings.ToLower(kind))) == 0 }
