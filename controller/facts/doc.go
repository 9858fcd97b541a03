// Package facts finds out what kind of cluster this is: its version of Kubernetes and, where it is one, of
// OpenShift. Constraints and the minimum versions of bundles are judged by them.
package facts
