package templates

import (
	"reflect"
	"slices"
	"text/template/parse"

	"github.com/stolostron/kubernetes-dependency-watches/client"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/lookup"
)

// serviceAccount is the account, in Opgate's namespace, that lookups are made as. It has the rights that an
// administrator grants to templates and no others.
const serviceAccount = "opgate-lookups"

// lookups is the watcher of a session. Every lookup of a template passes it, and it finds nothing that templates must
// not read.
type lookups struct {
	client.DynamicWatcher
	// reserved is Opgate's own namespace, in which nothing is found whatever the account may read; "" reserves none.
	reserved string
	// scope is that of the policy that is resolved.
	scope scope
}

// scope is what the templates of a policy may look up.
type scope struct {
	// unlimited scopes are of commands, which make requests with the rights of their own user.
	unlimited bool
	// namespace is the policy's own.
	namespace string
	// verified is set if the policy's author has the right to get all of lookups; else only what is in namespace may be
	// looked up.
	verified bool
	lookups  []lookup.Lookup
}

// literal reports whether every lookup names its object in the text of the template, so that a message that quotes the
// name shows nothing that was looked up.
func (s *scope) literal() bool {
	return !slices.ContainsFunc(s.lookups, func(l lookup.Lookup) bool { return l.Name == "" })
}

// permits fails if a policy's templates must not look up an object or, without a name, all of a kind. What its text
// does not show was not verified, so that a lookup that was not understood is never made.
func (s *scope) permits(resource client.ScopedGVR, namespace, name string) error {
	covered := func(l lookup.Lookup) bool { return l.Covers(resource.GroupResource(), namespace, name) }
	switch {
	case s.unlimited:
	case !slices.ContainsFunc(s.lookups, covered):
		return limitErrorf("it looks up what Opgate did not find in its text; write the kind, namespace and name in the call itself")
	case !s.verified && (!resource.Namespaced || namespace != s.namespace):
		return limitError(rules.UnverifiedLookupText)
	}
	return nil
}

// Get returns one object.
func (l *lookups) Get(
	watcher client.ObjectIdentifier, gvk schema.GroupVersionKind, namespace, name string,
) (*unstructured.Unstructured, error) {
	resource, err := l.allows(gvk, namespace)
	if err != nil {
		return nil, err
	}
	if resource.Namespaced && namespace == "" {
		return nil, limitErrorf("%s has namespaces: write one", gvk.Kind)
	}
	if err := l.scope.permits(resource, namespace, name); err != nil {
		return nil, err
	}
	return l.DynamicWatcher.Get(watcher, gvk, namespace, name)
}

// List returns the objects of a kind in a namespace or, if that is empty, in all except Opgate's.
func (l *lookups) List(
	watcher client.ObjectIdentifier, gvk schema.GroupVersionKind, namespace string, selector labels.Selector,
) ([]unstructured.Unstructured, error) {
	resource, err := l.allows(gvk, namespace)
	if err != nil {
		return nil, err
	}
	if err := l.scope.permits(resource, namespace, ""); err != nil {
		return nil, err
	}
	found, err := l.DynamicWatcher.List(watcher, gvk, namespace, selector)
	return slices.DeleteFunc(found, func(o unstructured.Unstructured) bool {
		return resource.Namespaced && o.GetNamespace() == l.reserved
	}), err
}

// allows returns the resource of a kind, and fails if templates must not look it up there, whatever their policy.
func (l *lookups) allows(gvk schema.GroupVersionKind, namespace string) (resource client.ScopedGVR, err error) {
	resource, err = l.GVKToGVR(gvk)
	switch {
	case err != nil:
		return resource, err
	case resource.Group == "" && resource.Resource == "secrets":
		return resource, limitErrorf("templates of OperatorPolicies cannot look up Secrets")
	case !resource.Namespaced && namespace != "": // which the library would ignore
		return resource, limitErrorf(`%s has no namespace: write ""`, gvk.Kind)
	case namespace != "" && namespace == l.reserved:
		return resource, limitErrorf("templates cannot look up what is in namespace %s, which is Opgate's own",
			namespace)
	case namespace != "" && len(validation.IsDNS1123Label(namespace)) > 0:
		return resource, limitErrorf("the namespace of a lookup is not the name of one")
	}
	return resource, nil
}

// withoutSecrets returns a function of the library that reads a Secret, in a form that fails.
func withoutSecrets(name string) func(...any) (string, error) {
	return func(...any) (string, error) {
		return "", limitErrorf("%s is not a function in templates of OperatorPolicies, which cannot look up Secrets",
			name)
	}
}

const (
	// maxValue bounds what is passed to one call of a function, and each value that it makes, in bytes. A value of a
	// list or map counts for valueSize, and a text for its length.
	maxValue  = 1 << 20
	valueSize = 64
	// maxProduced bounds what all calls of the functions of a policy make together, maxLookedUp what they look up.
	maxProduced = 16 << 20
	maxLookedUp = 64 << 20
	// maxDepth bounds how deep lists and maps are nested: functions that print them recurse, also where a map contains
	// itself.
	maxDepth = 100

	argumentFunction, resultFunction, shallowFunction, lookupFunction = "opgateArgument", "opgateResult",
		"opgateShallow", "opgateLookup"
)

// class is how the calls of a function are counted. The zero value counts most, so that a function that is not known is
// bounded too: all that is passed to it, and all that it makes. Such functions make at most a few bytes for each that
// is passed; the others are replaced (limits.functions).
type class int

const (
	counted class = iota
	// accessor functions return a part of what is passed to them, or a number: neither is measured.
	accessor
	// constructor functions make a list or map of values that are not copied: only its own size is measured.
	constructor
	// looking functions return what they look up.
	looking
)

var classes = map[string]class{}

func init() {
	for c, names := range map[class][]string{
		accessor: {"and", "or", "not", "eq", "ne", "lt", "le", "gt", "ge", "len", "index", "get", "hasKey", "dig",
			"default", "coalesce", "ternary", "empty",
			"first", "last", "mustFirst", "mustLast", "kindOf", "kindIs", "typeOf", "typeIs", "hasPrefix", "hasSuffix",
			"contains"},
		constructor: {"list", "tuple", "dict", "append", "push", "prepend", "mustAppend", "mustPush", "mustPrepend",
			"set", "unset", "rest", "mustRest",
			"initial", "mustInitial", "reverse", "mustReverse", "slice", "mustSlice", "values", "pick", "omit",
			"pluck"},
		looking: {"lookup", "fromConfigMap", "copyConfigMapData", "fromClusterClaim", "lookupClusterClaim",
			"getNodesWithExactRoles", "hasNodesWithExactRoles"},
	} {
		for _, name := range names {
			classes[name] = c
		}
	}
}

// argument measures a value that is passed to a call, one of a number: together they may have maxValue.
func (l *limits) argument(number int, value any) (any, error) {
	if limit := maxValue / max(1, number); measure(value, limit) > limit {
		return nil, limitErrorf("what it passes to a function is larger than 1 MiB in all, or nested too deep")
	}
	return value, nil
}

// result counts what a call has made.
func (l *limits) result(value any) (any, error) { return value, l.produce(measure(value, maxProduced)) }

// shallow counts a list or map without what it contains.
func (l *limits) shallow(value any) (any, error) {
	size := valueSize
	if v := reflect.ValueOf(value); v.Kind() == reflect.Slice || v.Kind() == reflect.Map {
		size += v.Len() * valueSize / 4
	}
	return value, l.produce(size)
}

// produce counts bytes that a function makes.
func (l *limits) produce(size int) error {
	if l.produced += min(size, maxProduced+1); l.produced > maxProduced {
		return limitErrorf("its functions make more than %d MiB", maxProduced>>20)
	}
	return nil
}

// lookedUp counts what a call has found.
func (l *limits) lookedUp(value any) (any, error) {
	if l.found += measure(value, maxLookedUp); l.found > maxLookedUp {
		return nil, limitErrorf("its lookups find more than %d MiB", maxLookedUp>>20)
	}
	return value, nil
}

// measure returns the size of a value, and one above the limit as soon as it exceeds that or is nested too deep.
func measure(value any, limit int) int {
	size := 0
	if text, ok := value.(string); ok {
		size = len(text)
	} else if !add(reflect.ValueOf(value), &size, limit, maxDepth) {
		return limit + 1
	}
	return min(size, limit+1)
}

func add(v reflect.Value, size *int, limit, depth int) bool {
	if *size += valueSize; *size > limit || depth == 0 {
		return false
	}
	switch v.Kind() {
	case reflect.String:
		*size += v.Len()
	case reflect.Interface, reflect.Pointer:
		*size -= valueSize // what it refers to counts
		return v.IsNil() || add(v.Elem(), size, limit, depth-1)
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			*size += v.Len()
			break
		}
		for i := range v.Len() {
			if !add(v.Index(i), size, limit, depth-1) {
				return false
			}
		}
	case reflect.Map:
		for entry := v.MapRange(); entry.Next(); {
			if !add(entry.Key(), size, limit, depth-1) || !add(entry.Value(), size, limit, depth-1) {
				return false
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if !add(v.Field(i), size, limit, depth-1) {
				return false
			}
		}
	default: // numbers and what has no content
	}
	return *size <= limit
}

// countPipe rewrites a pipeline so that what its calls take and make is counted.
func countPipe(tree *parse.Tree, pipe *parse.PipeNode) {
	if pipe == nil {
		return
	}
	var commands []*parse.CommandNode
	for i, c := range pipe.Cmds {
		name, isCall := called(c, i > 0)
		class := classes[name]
		passed := len(c.Args) - 1
		if i > 0 {
			passed++
		}
		limited := isCall && (class == counted || class == looking)
		for j, arg := range c.Args {
			c.Args[j] = countNode(tree, arg, limited && j > 0, passed)
		}
		if limited && i > 0 && name != "autoindent" {
			commands = append(commands, command(tree, argumentFunction, passed))
		}
		commands = append(commands, c)
		switch {
		// autoindent must be last; it is replaced by indent, which counts
		case !isCall || class == accessor || name == "autoindent":
		case class == constructor:
			commands = append(commands, command(tree, shallowFunction))
		case class == looking:
			commands = append(commands, command(tree, lookupFunction))
		default:
			commands = append(commands, command(tree, resultFunction))
		}
	}
	pipe.Cmds = commands
}

// called returns the name of the function that a command calls, "" for a method of a value.
func called(c *parse.CommandNode, piped bool) (name string, isCall bool) {
	if first, ok := c.Args[0].(*parse.IdentifierNode); ok {
		return first.Ident, true
	}
	return "", piped || len(c.Args) > 1
}

// countNode rewrites the pipelines in a node and, for one that is passed to a call, measures it.
func countNode(tree *parse.Tree, node parse.Node, measured bool, passed int) parse.Node {
	switch n := node.(type) {
	case *parse.PipeNode:
		countPipe(tree, n)
		if measured {
			n.Cmds = append(n.Cmds, command(tree, argumentFunction, passed))
		}
	case *parse.ChainNode:
		n.Node = countNode(tree, n.Node, false, 0)
		if measured {
			return argumentOf(tree, n, passed)
		}
	case *parse.IdentifierNode, *parse.FieldNode, *parse.VariableNode, *parse.DotNode:
		if measured {
			return argumentOf(tree, node, passed)
		}
	}
	return node // constants are as long as the template
}

// argumentOf returns a pipeline in place of a value that is passed to a call.
func argumentOf(tree *parse.Tree, node parse.Node, passed int) parse.Node {
	pipe := &parse.PipeNode{NodeType: parse.NodePipe,
		Cmds: []*parse.CommandNode{{NodeType: parse.NodeCommand, Args: []parse.Node{node}}}}
	countPipe(tree, pipe)
	pipe.Cmds = append(pipe.Cmds, command(tree, argumentFunction, passed))
	return pipe
}
