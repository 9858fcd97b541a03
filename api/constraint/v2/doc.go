// Package v2 serves the Constraint API under the version that the example of the proposal has. It is the same
// as v1, the version that is stored; the API server converts by changing the apiVersion only.
//
// +groupName=operators.coreos.com
// +kubebuilder:object:generate=true
package v2
