package rules

import (
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/rules/state"
)

// suffixes warns of one version that is installed, planned or offered and that spec.versionRange decides by its suffix.
func (in *preview) suffixes(ns *state.Namespace) {
	p := in.p
	if p.VersionRange == nil {
		return
	}
	var versions []string
	for _, installed := range ns.Installed() {
		if installed.Package == p.Package {
			versions = append(versions, installed.Version)
		}
	}
	for _, plan := range ns.Plans() {
		for _, r := range carrier.Replacements(ns, plan) {
			if r.Package == p.Package {
				versions = append(versions, r.Version)
			}
		}
	}
	if in.Package != nil {
		if offered := in.Package(p.Package, p.Catalog); offered != nil {
			for _, channel := range offered.Channels {
				for _, entry := range channel.Entries {
					versions = append(versions, entry.Version)
				}
			}
		}
	}
	for _, version := range versions {
		if wider := p.VersionRange.WithSuffixes(version); wider != "" {
			in.ineffective("spec.versionRange "+text.Quote(p.VersionRange.String())+" has "+text.Name(version)+
				" before the version without its suffix", "write "+text.Quote(wider)+" if suffixes are to count as the version")
			return
		}
	}
}
