// Package backstop compiles OperatorPolicies to admission policies of the API server, so that the core of the gate
// holds while no replica of Opgate answers, and even without its webhook configurations.
//
// The result is one ValidatingAdmissionPolicy and one MutatingAdmissionPolicy, each with a binding, that hold what the
// policies say as CEL literals: parameters are evaluated one by one, which is slow, and an API server may keep serving
// outdated ones. It depends on the policies and a few settings only, so it changes when a policy does.
//
// What it refuses, the gate refuses: it holds what rules.OperatorPolicy.NameRules says, and who may write which part of
// a plan. It admits what needs more than the request and the policies: catalogs, channels, Constraints, upgrades, and
// packages that only Subscriptions name. docs/backstop.md lists the direction of each approximation.
package backstop
