package inspect

import (
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// suffixNotes returns a note for each operator that is allowed whose version a range of a policy decides by its suffix.
// Refusals say so themselves.
func suffixNotes(ns *state.Namespace, operators []Operator) (notes []string) {
	for _, o := range operators {
		if o.Decision != verdict.Allow {
			continue
		}
		for _, p := range ns.Governing(o.Package) {
			if p.VersionRange == nil {
				continue
			}
			if wider := p.VersionRange.WithSuffixes(o.Version); wider != "" {
				notes = append(notes, "versionRange "+text.Quote(p.VersionRange.String())+" of "+p.Source()+" has "+
					text.Name(o.Version)+" before the version without its suffix: write "+text.Quote(wider)+
					" if suffixes are to count as the version")
			}
		}
	}
	return notes
}
