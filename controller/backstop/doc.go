// Package backstop writes what rules/backstop compiles from the OperatorPolicies: admission policies by which the API
// server holds the core of the gate by itself.
//
// The leader writes the objects when what they say differs from what is stored, restores them when another client
// changes or deletes them, and deletes them when there is nothing to hold. A ClusterRole of the release owns them, so
// that the garbage collector deletes them with the release; without that ClusterRole nothing is written.
package backstop
