package change

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
)

// fields are the fields of objects by path, with the set of values that each has. The elements of a list have the
// path of the list with [].
type fields map[string]map[string]bool

// read adds the fields at and below a value, except for those that are harmless or judged elsewhere. An element of a
// list is one value, so that its fields stay together, unless the list is entered.
func (f fields) read(path string, value any) {
	if skipped(path) || value == nil {
		return
	}
	switch v := value.(type) {
	case map[string]any:
		for key, field := range v {
			child := childOf(path, key)
			domain, _, qualified := strings.Cut(key, "/")
			switch {
			case qualified && skipped(path+"."+domain+"/"), skipped(child),
				path == annotationPath && olm.IsHarmlessAnnotation(key):
			case path == volumePath:
				f.add(child, field)
			default:
				f.read(child, field)
			}
		}
	case []any:
		for _, element := range v {
			if entered[path+"[]"] {
				f.read(path+"[]", element)
			} else if !skipped(path + "[]") {
				f.add(path, element)
			}
		}
	default:
		f.add(path, v)
	}
}

// childOf returns the path of a field.
func childOf(path, key string) string {
	switch alias := aliases[key]; {
	case path == "pod.spec.containers[].lifecycle" && (key == "postStart" || key == "preStop"):
		return "pod.spec.containers[].probe"
	case alias != "" && (path == "pod.spec" || path == "pod.spec.containers[]"):
		return path + "." + alias
	}
	return path + "." + key
}

func (f fields) add(path string, value any) {
	shown, ok := value.(string)
	if !ok {
		raw, err := json.Marshal(value)
		if err != nil {
			panic(err) // built from decoded JSON
		}
		shown = string(raw)
	}
	if f[path] == nil {
		f[path] = map[string]bool{}
	}
	f[path][shown] = true
}

// skipped reports whether the fields at and below a path are not compared here.
func skipped(path string) bool { return harmless[path] != "" || judged[path] != "" }

// readJSON reads an object as a whole.
func (f fields) readJSON(path string, raw []byte) error {
	var value any
	if err := json.Unmarshal(raw, &value); err != nil {
		return err
	}
	f.read(path, value)
	return nil
}

// readLazily reads an object, or a list that is entered, without decoding what is skipped: schemas are large.
func (f fields) readLazily(path string, raw []byte) error {
	var list []json.RawMessage
	var object map[string]json.RawMessage
	switch {
	case skipped(path):
		return nil
	case entered[path+"[]"] && json.Unmarshal(raw, &list) == nil:
		for _, element := range list {
			if err := f.readLazily(path+"[]", element); err != nil {
				return err
			}
		}
		return nil
	case json.Unmarshal(raw, &object) != nil || object == nil:
		return f.readJSON(path, raw)
	}
	for key, field := range object {
		if err := f.readLazily(childOf(path, key), field); err != nil {
			return err
		}
	}
	return nil
}

// readTyped reads a value of a Go type as it is encoded.
func (f fields) readTyped(path string, value any) error {
	raw, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return f.readJSON(path, raw)
}

// changed returns the paths that have other values in f than before, in order.
func (f fields) changed(before fields) []string {
	var paths []string
	for _, path := range sorted(slices.Concat(sortedKeys(f), sortedKeys(before))) {
		if added, removed := difference(f[path], before[path]); len(added)+len(removed) > 0 {
			paths = append(paths, path)
		}
	}
	return paths
}

// difference returns the values that only one of two sets has, in order.
func difference(now, before map[string]bool) (added, removed []string) {
	for _, value := range sortedKeys(now) {
		if !before[value] {
			added = append(added, value)
		}
	}
	for _, value := range sortedKeys(before) {
		if !now[value] {
			removed = append(removed, value)
		}
	}
	return added, removed
}

// describe returns what changed at a path: "priorityClassName a, before b", or "no longer priorityClassName b".
func (f fields) describe(path string, before fields) string {
	added, removed := difference(f[path], before[path])
	name := text.Escape(shortPath(path))
	switch {
	case len(added) == 0:
		return fmt.Sprintf("no longer %s %s", name, text.Join(removed, maxListed))
	case len(removed) == 0:
		return fmt.Sprintf("%s %s", name, text.Join(added, maxListed))
	}
	return fmt.Sprintf("%s %s, before %s", name, text.Join(added, maxListed), text.Join(removed, maxListed))
}

// shortPath returns a path as messages show it.
func shortPath(path string) string {
	for _, root := range []string{"pod.spec.", "pod.", "deployment.spec.", "webhook.", "crd.spec.", "csv."} {
		if short, ok := strings.CutPrefix(path, root); ok {
			path = short
			break
		}
	}
	return strings.ReplaceAll(path, "[]", "")
}
