// Package snapshot is the only store of the process: what admission judges by and what controllers work on.
//
// A declared table (Kinds) names each kind that is watched, how its objects are decoded, what they concern (a namespace
// or the cluster), what stands in for an object that does not decode, and who reads it: every replica or only the
// leader. Feed watches these kinds; a builder turns their events into immutable Snapshots, of which the Store holds the
// current one. A snapshot shares all that did not change with the one before: an event costs what it concerns holds.
//
// Whoever has written an object calls Store.Wait, so that nothing is decided on a state from before its own write.
package snapshot
