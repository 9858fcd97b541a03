// Package v1 holds the Constraint API as Opgate stores it: what every operator must satisfy that comes to the
// cluster, and what the cluster offers to operators.
//
// The package has types and constants only. What the JSON in the two strings means is decided in package
// rules/constraint; what the schema cannot say is validated by the admission webhook.
//
// A caller that changes the spec of a stored object must patch it and never send back the result of a typed
// decode: the spec keeps fields that these types do not know, so that the webhook can name them, and a typed
// round trip would drop them silently.
//
// +groupName=operators.coreos.com
// +kubebuilder:object:generate=true
package v1
