package verdict

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// OneOf checks that a field has one of the allowed values.
func OneOf[T ~string](path *field.Path, value T, allowed ...T) field.ErrorList {
	if slices.Contains(allowed, value) {
		return nil
	}
	if value == "" {
		return field.ErrorList{field.Required(path, fmt.Sprintf("must be one of %q", allowed))}
	}
	return field.ErrorList{field.NotSupported(path, value, allowed)}
}
