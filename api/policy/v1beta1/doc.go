// Package v1beta1 holds the OperatorPolicy API of the first releases, in both dialects: the older one, in
// which subscription.installPlanApproval decides what becomes of upgrades, and the current one, with
// upgradeApproval. Objects are stored as v1beta2; package conversion brings the one to the other.
//
// It also holds PolicySet, which has no other version.
//
// +groupName=policy.open-cluster-management.io
// +kubebuilder:object:generate=true
package v1beta1
