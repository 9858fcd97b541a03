package backstop

import (
	"fmt"
	"strings"
)

// optional is an expression for a field of an object, or what a missing one means.
func optional(object, path, missing string) string {
	return object + ".?" + strings.ReplaceAll(path, ".", ".?") + ".orValue(" + missing + ")"
}

// maxCompared bounds the elements that are compared field by field.
const maxCompared = 1000

// changedList is an expression for a list of the path of a list if a write changes it. Lists that differ only in fields
// that mean the same when they are missing are equal for the gate, so such lists are compared field by field. Long ones
// are not, which costs too much.
func changedList(path, v string, fields []string) string {
	of := func(object string) string {
		values := make([]string, len(fields))
		for i, f := range fields {
			values[i] = v + ".?" + f + ".orValue('')"
		}
		flag := v + ".?optional.orValue(false)"
		return fmt.Sprintf("%s.map(%s, [%s, %s])", optional(object, path, "[]"), v,
			"dyn("+strings.Join(values, "), dyn(")+")", "dyn("+flag+")")
	}
	was, is := optional("oldObject", path, "[]"), optional("object", path, "[]")
	return fmt.Sprintf("(%s != %s && (size(%s) != size(%s) || size(%s) > %d || %s != %s) ? [%s] : [])",
		is, was, is, was, is, maxCompared, of("object"), of("oldObject"), quote(path))
}
