package state

import (
	"strings"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/verdict"
)

// ForbiddenText returns what a mustnothave policy forbids.
func (p *OperatorPolicy) ForbiddenText() string {
	var parts []string
	if len(p.Versions.Entries) > 0 {
		parts = append(parts, text.Names(p.Versions.Entries, verdict.MaxListed))
	} else {
		parts = append(parts, "package "+p.Package)
	}
	if p.VersionRange != nil {
		parts = append(parts, "in range "+text.Quote(p.VersionRange.String()))
	}
	if p.Catalog.Name != "" || p.Catalog.Namespace != "" {
		parts = append(parts, "from "+p.CatalogText())
	}
	return strings.Join(parts, " ")
}

// Acceptance returns what a policy allows.
func (p *OperatorPolicy) Acceptance() string {
	switch {
	case p.MustNotHave:
		return "the policy is mustnothave for " + p.ForbiddenText()
	case len(p.Versions.Entries) > 0:
		return p.AcceptedVersions()
	case p.VersionRange != nil:
		return "allowed is versionRange " + text.Quote(p.VersionRange.String())
	}
	return ""
}
