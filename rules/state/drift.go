package state

import (
	"slices"

	"github.com/opgate/opgate/olm"
)

// contents is the result of comparing an installed ClusterServiceVersion with its plan.
type contents int

const (
	// contentsUnknown means that no plan has the manifest: the plan was deleted, or refers to an image.
	contentsUnknown contents = iota
	contentsSame
	contentsChanged
)

// brought compares contents with those that plans have written under a name. Tenants may have written the status of a
// plan before a policy governed the namespace: this is enough to report a difference, and never to allow one.
func (n *Namespace) brought(csv string, spec *olm.CSVSpec) contents {
	found := contentsUnknown
	for _, plan := range n.Plans() {
		if !plan.Spec.Approved {
			continue
		}
		for i := range plan.Status.Steps {
			s := &plan.Status.Steps[i]
			if !s.WritesCSV(csv) || s.Resource.Manifest.Spec == nil || s.Status != "Created" && s.Status != "Present" {
				continue
			}
			if s.Resource.Manifest.Spec.ContentsDigest() == spec.ContentsDigest() {
				return contentsSame
			}
			found = contentsChanged
		}
	}
	return found
}

// IsRecorded reports whether contents are those that are recorded of a ClusterServiceVersion, of which a record of an
// earlier release has the spec alone. It returns false without a record.
func (n *Namespace) IsRecorded(csv string, spec *olm.CSVSpec) bool {
	r := n.Recorded(csv)
	return r != nil && r.Digest == hexadecimal(spec.SpecDigest()) &&
		(r.Annotations == "" || r.Annotations == hexadecimal(spec.AnnotationsDigest()))
}

// InstalledAsRecorded reports whether a ClusterServiceVersion is installed with the contents that are recorded of it.
func (n *Namespace) InstalledAsRecorded(csv string) bool {
	return slices.ContainsFunc(n.Installed(),
		func(c Installed) bool { return c.Name == csv && c.Spec != nil && n.IsRecorded(csv, c.Spec) })
}

// Drifted reports whether an installed ClusterServiceVersion differs from what is recorded of it or, without a record
// or if its contents were adopted, from its plan. It returns false if neither has its contents.
func (n *Namespace) Drifted(csv string) bool {
	for i := range n.Installed() {
		if c := &n.installed[i]; c.Name == csv && c.Spec != nil {
			r := n.Recorded(csv)
			if r != nil && !n.IsRecorded(csv, c.Spec) {
				return true
			}
			return (r == nil || r.Adopted) && n.brought(csv, c.Spec) == contentsChanged
		}
	}
	return false
}

// DriftedOf returns an installed ClusterServiceVersion of a package that differs from its plan, or "".
func (n *Namespace) DriftedOf(pkg string) string {
	for _, c := range n.Installed() {
		if c.Package == pkg && n.Drifted(c.Name) {
			return c.Name
		}
	}
	return ""
}
