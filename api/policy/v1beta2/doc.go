// Package v1beta2 holds the OperatorPolicy API as Opgate stores it. It is the hub version: every other
// version converts to and from this one.
//
// The package has types, constants and accessors only. What a policy means is decided in package rules;
// what the schema cannot say is validated by the admission webhook.
//
// A caller that changes the spec of a stored object must patch it and never send back the result of a
// typed decode: spec.subscription and spec.operatorGroup keep fields that these types do not know, so
// that the webhook can name them, and a typed round trip would drop them silently.
//
// +groupName=policy.open-cluster-management.io
// +kubebuilder:object:generate=true
package v1beta2
