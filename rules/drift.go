package rules

import "github.com/opgate/opgate/olm"

// contents is the result of comparing an installed ClusterServiceVersion with its plan.
type contents int

const (
	// contentsUnknown means that no plan has the manifest: the plan was deleted, or refers to an image.
	contentsUnknown contents = iota
	contentsSame
	contentsChanged
)

// brought compares contents with those that plans have written under a name. Plans that OLM has not completed are ignored.
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

// Drifted reports whether an installed ClusterServiceVersion differs from its plan. It returns false if no plan has its contents.
func (n *Namespace) Drifted(csv string) bool {
	for i := range n.Installed() {
		if c := &n.installed[i]; c.CSV == csv && c.spec != nil {
			return n.brought(csv, c.spec) == contentsChanged
		}
	}
	return false
}

// driftedOf returns an installed ClusterServiceVersion of a package that differs from its plan, or "".
func (n *Namespace) driftedOf(pkg string) string {
	for _, c := range n.Installed() {
		if c.Package == pkg && n.Drifted(c.CSV) {
			return c.CSV
		}
	}
	return ""
}
