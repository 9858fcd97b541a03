// Package owned is what the objects of Opgate that a ClusterRole of the release owns have in common: their owner,
// without which nothing is written, and their metadata.
//
// An object replaces the stored one: server-side apply would leave alone what another client has added, and an
// exemption in an admission policy must not stay.
package owned
