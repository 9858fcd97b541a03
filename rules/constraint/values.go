package constraint

import (
	"encoding/json"
	"maps"
	"unicode/utf8"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/facts"
)

// mapOf returns a map as a CEL value.
func mapOf(entries map[string]any) ref.Val {
	return types.NewStringInterfaceMap(types.DefaultTypeAdapter, entries)
}

// seen returns a text as a CEL value.
func seen(text string) ref.Val {
	if len(text) > maxSeenText && utf8.RuneCountInString(text) > maxSeenText {
		return types.NewErr("the value is a text of more than %d characters", maxSeenText)
	}
	return types.String(text)
}

// value converts decoded JSON to a CEL value, once for all rules. Numbers are doubles, as in OLM.
func value(v any, depth int) ref.Val {
	if depth > maxSeenDepth {
		return types.NewErr("the value is nested deeper than %d levels", maxSeenDepth)
	}
	switch v := v.(type) {
	case string:
		return seen(v)
	case float64:
		return types.Double(v)
	case bool:
		return types.Bool(v)
	case []any:
		if len(v) > maxSeenElements {
			return types.NewErr("the value is a list of more than %d elements", maxSeenElements)
		}
		elements := make([]ref.Val, len(v))
		for i := range v {
			elements[i] = value(v[i], depth+1)
		}
		return types.NewRefValList(types.DefaultTypeAdapter, elements)
	case map[string]any:
		if len(v) > maxSeenElements {
			return types.NewErr("the value is a map of more than %d entries", maxSeenElements)
		}
		entries := make(map[string]any, len(v))
		for key, element := range v {
			entries[key] = value(element, depth+1)
		}
		return mapOf(entries)
	default:
		return types.NullValue
	}
}

// properties converts properties to the list of {type, value} that OLM's rules see. A value that cannot be decoded (a
// number that overflows a double) leaves an empty element, as in OLM's resolver: celPredicate.Test in
// operator-lifecycle-manager pkg/controller/registry/resolver/cache/predicates.go.
func properties(of []olm.Property) ref.Val {
	list := make([]ref.Val, len(of))
	for i, p := range of {
		var decoded any
		if err := json.Unmarshal(p.Raw, &decoded); err != nil {
			list[i] = mapOf(map[string]any{})
			continue
		}
		list[i] = mapOf(map[string]any{"type": types.String(p.Type), "value": value(decoded, 0)})
	}
	return types.NewRefValList(types.DefaultTypeAdapter, list)
}

// ruleMaps converts rules of RBAC or of webhooks: lists of texts under their Kubernetes names. A rule that uses an
// unreadable list fails.
func ruleMaps(rules []map[string][]string, err error) ref.Val {
	switch {
	case err != nil:
		return types.NewErr("%s", err.Error())
	case len(rules) > maxSeenElements:
		return types.NewErr("the ClusterServiceVersion has %d rules there, more than the %d that are judged",
			len(rules), maxSeenElements)
	}
	all := make([]ref.Val, len(rules))
	for i, r := range rules {
		lists := make(map[string]any, len(r))
		for name, texts := range r {
			lists[name] = list(texts)
		}
		all[i] = mapOf(lists)
	}
	return types.NewRefValList(types.DefaultTypeAdapter, all)
}

// images converts images: maps of texts. A rule that uses images that cannot be read fails.
func images(of []olm.Image, err error) ref.Val {
	if err != nil {
		return types.NewErr("%s", err.Error())
	}
	all := make([]ref.Val, len(of))
	for i := range of {
		registry, repository, tag, digest := of[i].Parts()
		all[i] = mapOf(map[string]any{"reference": seen(of[i].Reference), "registry": seen(registry),
			"repository": seen(repository), "tag": seen(tag), "digest": seen(digest), "from": seen(of[i].From),
			"name": seen(of[i].Name)})
	}
	return types.NewRefValList(types.DefaultTypeAdapter, all)
}

// textList converts a list of texts. A rule that uses an unreadable list fails.
func textList(texts []string, err error) ref.Val {
	if err != nil {
		return types.NewErr("%s", err.Error())
	}
	return list(texts)
}

// list converts texts.
func list(texts []string) ref.Val {
	if len(texts) > maxSeenElements {
		return types.NewErr("the value is a list of more than %d elements", maxSeenElements)
	}
	all := make([]ref.Val, len(texts))
	for i := range texts {
		all[i] = seen(texts[i])
	}
	return types.NewRefValList(types.DefaultTypeAdapter, all)
}

// annotations converts annotations. A rule that reads one that is too long fails; asking whether it exists does not.
func annotations(texts map[string]*string, err error) ref.Val {
	switch {
	case err != nil:
		return types.NewErr("%s", err.Error())
	case len(texts) > maxSeenElements:
		return types.NewErr("the ClusterServiceVersion has %d annotations, more than the %d that are judged",
			len(texts), maxSeenElements)
	}
	all := make(map[string]any, len(texts))
	for name, text := range texts {
		if text == nil {
			all[name] = types.NewErr("annotation %s is too long to be judged", name)
			continue
		}
		all[name] = seen(*text)
	}
	return mapOf(all)
}

// surroundings are the values of the cluster and of a namespace, shared by all bundles that are judged there.
type surroundings struct {
	// facts are those that cluster has the values of.
	facts              *facts.Cluster
	cluster, namespace ref.Val
	unknown            []*interpreter.AttributePattern
	unknownAttributes  Attributes
}

// clusterValues returns the values of the cluster and its properties, once per Set.
func clusterValues(c *facts.Cluster, offered []olm.Property) surroundings {
	s := surroundings{facts: c, cluster: mapOf(map[string]any{"version": types.String(c.Version),
		"openshift": types.String(c.OpenShift), "properties": properties(offered)})}
	if c.Version == "" {
		s.unknownAttributes = ClusterVersion
		s.unknown = append(s.unknown,
			interpreter.NewAttributePattern(varCluster).QualString("version"),
			interpreter.NewAttributePattern(varCluster).QualString("openshift"))
		// The automatic properties are missing; the list is complete only if the definitions replace them.
		for _, automatic := range automaticTypes {
			if !hasType(offered, automatic) {
				s.unknown = append(s.unknown, interpreter.NewAttributePattern(varCluster).QualString("properties"))
				break
			}
		}
	}
	return s
}

// in returns the values with a namespace added.
func (s surroundings) in(ns Namespace) surroundings {
	s.namespace = mapOf(map[string]any{"metadata": mapOf(map[string]any{"name": types.String(ns.Name),
		"labels": types.NewStringStringMap(types.DefaultTypeAdapter, maps.Clone(ns.Labels))})})
	if ns.Unknown {
		s.unknownAttributes |= NamespaceLabels
		s.unknown = append(s.unknown[:len(s.unknown):len(s.unknown)],
			interpreter.NewAttributePattern(varNamespace).QualString("metadata").QualString("labels"))
	}
	return s
}
