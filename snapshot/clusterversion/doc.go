// Package clusterversion watches the version of the cluster: of Kubernetes and, on OpenShift, of OpenShift. Constraints
// and the minimum versions of bundles are judged by it.
package clusterversion
