// Package kept names the ConfigMaps and Leases that Opgate writes in its own namespace. What writes them takes the names
// from here, and so does the admission policy that keeps other users from it.
package kept

// The ConfigMaps.
const (
	// Catalogs has what the images of catalogs changed, and when their versions were first seen.
	Catalogs = "opgate-catalogs"
	// Installed begins the names of the records of what was installed; the name of a namespace follows.
	Installed = "opgate-installed-"
	// CA has the certificates that verify Opgate's own. The Secret with their keys has the same name.
	CA = "opgate-ca"
)

// Lease elects the leader.
const Lease = "opgate-loop"

// ConfigMaps returns the names of the ConfigMaps. One that ends in a hyphen begins the names of several.
func ConfigMaps() []string { return []string{Catalogs, Installed, CA} }

// Leases returns the names of the Leases.
func Leases() []string { return []string{Lease} }
