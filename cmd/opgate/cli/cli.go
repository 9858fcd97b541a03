// Package cli is what the commands share: how they read arguments, and how they end.
package cli

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

// InNamespace returns NAMESPACE/NAME for a name without a namespace; every other argument as it is.
func InNamespace(namespace, arg string) string {
	if namespace == "" || strings.Contains(arg, "/") {
		return arg
	}
	return namespace + "/" + arg
}

// ExitError is an error with the exit code of the process. Its message is empty if everything has been printed.
type ExitError struct {
	Code    int
	Message string
	// Cause is the error that the message is about, if any.
	Cause error
}

// Unwrap returns the cause.
func (e *ExitError) Unwrap() error { return e.Cause }

func (e *ExitError) Error() string { return e.Message }

// ExitCode returns the exit code of the process.
func (e *ExitError) ExitCode() int { return e.Code }
