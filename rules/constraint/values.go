package constraint

import (
	"encoding/json"
	"math/bits"
	"unicode/utf8"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/facts"
)

// shape is the size of the inputs of a rule, each as a power of two. A cost estimate depends only on it and the rule,
// and it is small enough to be a key.
type shape struct {
	properties uint8 // of the bundle
	cluster    uint8 // properties of the cluster
	elements   uint8 // of the largest list or map within a value
	rules      uint8 // of RBAC or of webhooks
	text       uint8 // characters of the longest text
	typeText   uint8 // characters of the longest property type
	weight     uint8 // of the heaviest single property value, see weigh
}

// hints is the shape for which rules are admitted: a rule whose cost could exceed the limit for a bundle of this shape
// is refused. Larger bundles are judged too, see program.eval.
var hints = shape{properties: 6, cluster: 5, elements: 6, rules: 6, text: 8, typeText: 6, weight: 6}

func power(n int) uint8 {
	if n <= 1 {
		return 0
	}
	return uint8(bits.Len(uint(n - 1))) //nolint:gosec // at most 64
}

// most returns the element-wise maximum of two shapes.
func (s shape) most(o shape) shape {
	return shape{
		properties: max(s.properties, o.properties), cluster: max(s.cluster, o.cluster),
		elements: max(s.elements, o.elements), rules: max(s.rules, o.rules),
		text: max(s.text, o.text), typeText: max(s.typeText, o.typeText), weight: max(s.weight, o.weight),
	}
}

// measure collects the maxima that a shape consists of.
type measure struct{ elements, rules, text, typeText, weight int }

func (m *measure) see(texts ...string) {
	for _, t := range texts {
		m.text = max(m.text, len(t))
	}
}

// seen returns a text as a CEL value.
func (m *measure) seen(text string) ref.Val {
	if len(text) > maxSeenText && utf8.RuneCountInString(text) > maxSeenText {
		return types.NewErr("the value is a text of more than %d characters", maxSeenText)
	}
	m.see(text)
	return types.String(text)
}

// value converts decoded JSON to a CEL value, once for all rules, and returns its weight: the cost of a deep
// comparison. Numbers are doubles, as in OLM.
func (m *measure) value(v any, depth int) (ref.Val, int) {
	if depth > maxSeenDepth {
		return types.NewErr("the value is nested deeper than %d levels", maxSeenDepth), 1
	}
	switch v := v.(type) {
	case string:
		return m.seen(v), 1 + len(v)/10
	case float64:
		return types.Double(v), 1
	case bool:
		return types.Bool(v), 1
	case []any:
		if len(v) > maxSeenElements {
			return types.NewErr("the value is a list of more than %d elements", maxSeenElements), 1
		}
		m.elements = max(m.elements, len(v))
		list, weight := make([]ref.Val, len(v)), 1
		for i := range v {
			element, w := m.value(v[i], depth+1)
			list[i] = element
			weight += w
		}
		return types.NewRefValList(types.DefaultTypeAdapter, list), weight
	case map[string]any:
		if len(v) > maxSeenElements {
			return types.NewErr("the value is a map of more than %d entries", maxSeenElements), 1
		}
		m.elements = max(m.elements, len(v))
		entries, weight := make(map[string]any, len(v)), 1
		for key, element := range v {
			m.see(key)
			seen, w := m.value(element, depth+1)
			entries[key] = seen
			weight += w + 1 + len(key)/10
		}
		return types.NewStringInterfaceMap(types.DefaultTypeAdapter, entries), weight
	default:
		return types.NullValue, 1
	}
}

// properties converts properties to the list of {type, value} that OLM's rules see. A value that cannot be decoded (a
// number that overflows a double) leaves an empty element, as in OLM's resolver: celPredicate.Test in
// operator-lifecycle-manager pkg/controller/registry/resolver/cache/predicates.go.
func (m *measure) properties(properties []olm.Property) ref.Val {
	list := make([]ref.Val, len(properties))
	for i, p := range properties {
		var decoded any
		if err := json.Unmarshal(p.Raw, &decoded); err != nil {
			list[i] = types.NewStringInterfaceMap(types.DefaultTypeAdapter, map[string]any{})
			continue
		}
		m.typeText = max(m.typeText, len(p.Type))
		value, weight := m.value(decoded, 0)
		m.weight = max(m.weight, weight)
		list[i] = types.NewStringInterfaceMap(types.DefaultTypeAdapter,
			map[string]any{"type": types.String(p.Type), "value": value})
	}
	return types.NewRefValList(types.DefaultTypeAdapter, list)
}

// ruleLists converts rules of RBAC or of webhooks: lists of texts under their Kubernetes names. A rule that uses an
// unreadable list fails.
func (m *measure) ruleLists(rules []map[string][]string, err error) ref.Val {
	switch {
	case err != nil:
		return types.NewErr("%s", err.Error())
	case len(rules) > maxSeenElements:
		return types.NewErr("the ClusterServiceVersion has %d rules there, more than the %d that are judged",
			len(rules), maxSeenElements)
	}
	list := make([]ref.Val, len(rules))
	for i, r := range rules {
		lists := make(map[string]any, len(r))
		for name, texts := range r {
			lists[name] = m.list(texts)
		}
		list[i] = types.NewStringInterfaceMap(types.DefaultTypeAdapter, lists)
	}
	m.rules = max(m.rules, len(list))
	return types.NewRefValList(types.DefaultTypeAdapter, list)
}

// imageTexts are the texts of an image, as rules read them.
const imageTexts = 7

// images converts images: maps of texts. A rule that uses images that cannot be read fails.
func (m *measure) images(images []olm.Image, err error) ref.Val {
	if err != nil {
		return types.NewErr("%s", err.Error())
	}
	list := make([]ref.Val, len(images))
	for i := range images {
		registry, repository, tag, digest := images[i].Parts()
		list[i] = types.NewStringInterfaceMap(types.DefaultTypeAdapter,
			map[string]any{"reference": m.seen(images[i].Reference),
				"registry": m.seen(registry), "repository": m.seen(repository), "tag": m.seen(tag),
				"digest": m.seen(digest),
				"from":   m.seen(images[i].From), "name": m.seen(images[i].Name)})
	}
	m.rules, m.elements = max(m.rules, len(list)), max(m.elements, imageTexts)
	return types.NewRefValList(types.DefaultTypeAdapter, list)
}

// texts converts a list of texts. A rule that uses an unreadable list fails.
func (m *measure) texts(texts []string, err error) ref.Val {
	if err != nil {
		return types.NewErr("%s", err.Error())
	}
	return m.list(texts)
}

func (m *measure) list(texts []string) ref.Val {
	if len(texts) > maxSeenElements {
		return types.NewErr("the value is a list of more than %d elements", maxSeenElements)
	}
	m.elements = max(m.elements, len(texts))
	seen := make([]ref.Val, len(texts))
	for i := range texts {
		seen[i] = m.seen(texts[i])
	}
	return types.NewRefValList(types.DefaultTypeAdapter, seen)
}

// annotations converts annotations. A rule that reads one that is too long fails; asking whether it exists does not.
func (m *measure) annotations(texts map[string]*string, err error) ref.Val {
	switch {
	case err != nil:
		return types.NewErr("%s", err.Error())
	case len(texts) > maxSeenElements:
		return types.NewErr("the ClusterServiceVersion has %d annotations, more than the %d that are judged",
			len(texts), maxSeenElements)
	}
	m.elements = max(m.elements, len(texts))
	seen := make(map[string]any, len(texts))
	for name, value := range texts {
		m.see(name)
		if value == nil {
			seen[name] = types.NewErr("annotation %s is too long to be judged", name)
			continue
		}
		seen[name] = m.seen(*value)
	}
	return types.NewStringInterfaceMap(types.DefaultTypeAdapter, seen)
}

func (m *measure) shape() shape {
	return shape{elements: power(m.elements), rules: power(m.rules), text: power(m.text), typeText: power(m.typeText),
		weight: power(m.weight)}
}

// surroundings are the values of the cluster and of a namespace, shared by all bundles that are judged there.
type surroundings struct {
	// facts are those that cluster has the values of.
	facts              *facts.Cluster
	cluster, namespace ref.Val
	shape              shape
	unknown            []*interpreter.AttributePattern
	unknownAttributes  Attributes
}

// clusterValues returns the values of the cluster and its properties, once per Set.
func clusterValues(c *facts.Cluster, properties []olm.Property) surroundings {
	var m measure
	m.see(c.Version, c.OpenShift)
	list := m.properties(properties)
	s := surroundings{
		facts: c,
		cluster: types.NewStringInterfaceMap(types.DefaultTypeAdapter, map[string]any{
			"version": types.String(c.Version), "openshift": types.String(c.OpenShift), "properties": list,
		}),
		shape: m.shape(),
	}
	s.shape.cluster = power(len(properties))
	if c.Version == "" {
		s.unknownAttributes = ClusterVersion
		s.unknown = append(s.unknown,
			interpreter.NewAttributePattern(varCluster).QualString("version"),
			interpreter.NewAttributePattern(varCluster).QualString("openshift"))
		// The automatic properties are missing; the list is complete only if the definitions replace them.
		for _, automatic := range automaticTypes {
			if !hasType(properties, automatic) {
				s.unknown = append(s.unknown, interpreter.NewAttributePattern(varCluster).QualString("properties"))
				break
			}
		}
	}
	return s
}

// in returns the values with a namespace added.
func (s surroundings) in(ns Namespace) surroundings {
	var m measure
	m.see(ns.Name)
	labels := make(map[string]string, len(ns.Labels))
	for k, v := range ns.Labels {
		m.see(k, v)
		labels[k] = v
	}
	m.elements = len(labels)
	s.shape = s.shape.most(m.shape())
	s.namespace = types.NewStringInterfaceMap(types.DefaultTypeAdapter, map[string]any{
		"metadata": types.NewStringInterfaceMap(types.DefaultTypeAdapter, map[string]any{
			"name": types.String(ns.Name), "labels": types.NewStringStringMap(types.DefaultTypeAdapter, labels),
		}),
	})
	if ns.Unknown {
		s.unknownAttributes |= NamespaceLabels
		s.unknown = append(s.unknown[:len(s.unknown):len(s.unknown)],
			interpreter.NewAttributePattern(varNamespace).QualString("metadata").QualString("labels"))
	}
	return s
}
