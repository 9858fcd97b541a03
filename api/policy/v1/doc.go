// Package v1 holds the Policy API: objects that are applied together, and what has to be so before each of them
// is applied.
//
// The package has types and constants only. What a dependency means and which template may be applied is decided
// in package rules/dependency; what the schema cannot say is validated by the admission webhook.
//
// Every field of the public Policy API is here, so that an object written for that API is read as it was meant.
// Fields that only a hub fills in are kept and not used.
//
// +groupName=policy.open-cluster-management.io
// +kubebuilder:object:generate=true
package v1
