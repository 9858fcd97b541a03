package change

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/opgate/opgate/internal/text"
)

// parentOf returns the path of the object or list that a field belongs to; "" for the root.
func parentOf(path string) string {
	return path[:max(0, strings.LastIndexAny(path, ".["))]
}

// fieldName returns a path as messages show it: crdify's begins with ^.
func fieldName(path string) string {
	name := strings.TrimPrefix(strings.TrimPrefix(path, "^"), ".")
	if name == "" {
		return "the object"
	}
	return text.Escape(name)
}

// describe returns what a comparator found without what changes from one call to the next.
func describe(name, message string, was, is *schema) string {
	switch name {
	case "required":
		added := slices.DeleteFunc(slices.Clone(is.Required),
			func(f string) bool { return slices.Contains(was.Required, f) })
		return "new required fields: " + text.Names(sorted(added), maxListed)
	case "unhandled":
		return "changed: " + text.Join(changedKeywords(was, is), maxListed)
	}
	return text.Truncate(strings.Replace(message, " : ", ": ", 1), maxText)
}

// handled are the keywords that comparators of crdify compare.
var handled = []string{"type", "required", "enum", "default", "description", "maximum", "maxItems", "maxLength",
	"maxProperties",
	"minimum", "minItems", "minLength", "minProperties"}

// changedKeywords returns the keywords of a field that differ and that no comparator handles.
func changedKeywords(was, is *schema) []string {
	before, after := keywords(was), keywords(is)
	var changed []string
	for name := range before {
		if !bytes.Equal(before[name], after[name]) {
			changed = append(changed, name)
		}
	}
	for name := range after {
		if before[name] == nil {
			changed = append(changed, name)
		}
	}
	changed = slices.DeleteFunc(changed, func(name string) bool { return slices.Contains(handled, name) })
	if i := slices.Index(changed, "id"); i >= 0 {
		changed[i] = "allOf, anyOf, oneOf or not"
	}
	return sorted(changed)
}

func keywords(s *schema) map[string]json.RawMessage {
	var found map[string]json.RawMessage
	raw, err := json.Marshal(shallow(s))
	if err != nil || json.Unmarshal(raw, &found) != nil {
		return nil // a schema always encodes as an object
	}
	return found
}
