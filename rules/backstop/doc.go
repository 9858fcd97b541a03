// Package backstop compiles OperatorPolicies to admission policies of the API server, so that the core of the gate
// holds while no replica of Opgate answers, and even without its webhook configurations.
//
// What holds is written in the templates of folder policies, which state all rules; this package fills in what policies
// say, as lines of text: parameters of admission policies have windows in which they open the gate
// (docs/decisions/2026-11-22-the-gate-inside-the-api-server.md). The objects depend on the policies, a few settings and
// the names of what is installed that none may replace, so they change when a policy or one of these does.
//
// What they refuse, the gate refuses: they hold what rules.OperatorPolicy.NameRules says, and who may write which part
// of a plan. They admit what needs more than the request and the policies: catalogs, channels, Constraints, upgrades,
// and packages that only Subscriptions name. docs/backstop.md lists the direction of each approximation.
package backstop
