// Package args parses arguments that several commands take.
package args

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// NamespacedName parses NAMESPACE/NAME, and reports whether both are names of objects.
func NamespacedName(arg string) (key types.NamespacedName, ok bool) {
	namespace, name, _ := strings.Cut(arg, "/")
	return types.NamespacedName{Namespace: namespace, Name: name},
		len(validation.IsDNS1123Label(namespace)) == 0 && len(validation.IsDNS1123Subdomain(name)) == 0
}
