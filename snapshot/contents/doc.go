// Package contents reads what InstallPlans bring: the manifests in a plan, or in the ConfigMaps that OLM unpacked its
// bundles into, and the installed objects that they replace. The comparison itself is package rules/change.
//
// The webhook never waits for it. A Cache answers from memory, reads in the background when a snapshot first shows a
// plan whose policy asks for consent, or that a Constraint judges by contents, and reads again when one of the objects
// changes. Of each ClusterServiceVersion it keeps the result of the comparison, a few kilobytes, and the lists that
// Constraints read, which package olm bounds; of the rest of a manifest nothing.
package contents
