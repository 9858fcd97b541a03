// Package snapshot is the only store of the process: admission judges by it and controllers work on it.
//
// A declared table (Kinds) names each kind that is watched, how its objects are decoded, which subject they belong to
// (a namespace or the cluster), what replaces an object that does not decode, and who reads it: every replica or only
// the leader. Feed watches these kinds; a builder turns their events into immutable Snapshots, of which the Store holds
// the current one. A snapshot shares all that did not change with the previous one: the cost of an event is that of its
// subject.
//
// After a write call Store.Wait, so that nothing is decided on a state from before that write.
package snapshot
