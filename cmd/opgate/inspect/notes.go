package inspect

import (
	"slices"
	"strings"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// Operator is a ClusterServiceVersion of a plan, or an installed one, with its disposition.
type Operator struct {
	CSV         string   `json:"csv"`
	Package     string   `json:"package"`
	Version     string   `json:"version"`
	Release     string   `json:"release,omitempty"`
	Disposition string   `json:"disposition"`
	By          []string `json:"by,omitempty"`

	// Decision is that of the disposition.
	Decision verdict.Decision `json:"-"`
}

// Describe returns the name of an operator and, if known, of its package.
func (o *Operator) Describe() string {
	if o.Package == "" {
		return o.CSV + ": "
	}
	return o.CSV + " (" + strings.TrimSpace("package "+o.Package+" "+olm.VersionText(o.Version, o.Release)) + "): "
}

// Because names what the disposition comes from.
func (o *Operator) Because() string {
	switch {
	case len(o.By) > 0:
		return " by " + strings.Join(o.By, ", ")
	case o.Disposition == verdict.Ungoverned.String():
		return ", no enforcing OperatorPolicy restricts it"
	}
	return ""
}

// Reason is why a verdict holds or refuses.
type Reason struct {
	Rule    verdict.RuleID    `json:"rule"`
	Source  verdict.PolicyRef `json:"source"`
	Message string            `json:"message"`
}

// Reasons returns reasons of a verdict as they are printed, never nil.
func Reasons(of []verdict.Reason) []Reason {
	reasons := []Reason{}
	for _, r := range of {
		reasons = append(reasons, Reason{r.Rule, r.From, r.Message})
	}
	return reasons
}

// Warnings returns what would be changed, and then the admission warnings, in their order.
func Warnings(v *verdict.Verdict) (list []verdict.Reason) {
	for _, c := range v.Changes {
		if c.Message != "" {
			list = append(list, verdict.Reason{Rule: c.Rule, Message: c.Preview()}) // nothing is changed here
		}
	}
	return append(list, v.Warnings...)
}

// WarningTexts returns the messages of Warnings, never nil.
func WarningTexts(v *verdict.Verdict) []string {
	texts := []string{}
	for _, w := range Warnings(v) {
		texts = append(texts, w.Message)
	}
	return texts
}

// operators returns an answer with the operators that a verdict is about. Those that no policy or Constraint is about
// are names.
func (c *Cluster) operators(ns *state.Namespace, v verdict.Verdict, names []string) *Answer {
	a := &Answer{Verdict: v}
	for i := range v.CSVs {
		of := &v.CSVs[i]
		o := Operator{CSV: of.CSV, Package: of.Package, Version: of.Version, Release: of.Release,
			Disposition: of.Disposition.String(), By: of.By}
		switch of.Disposition {
		case verdict.Held:
			o.Decision = verdict.Hold
		case verdict.Denied:
			o.Decision = verdict.Deny
		case verdict.Allowed, verdict.Required, verdict.Ungoverned:
		}
		a.Operators = append(a.Operators, o)
		a.Ungoverned = a.Ungoverned || of.Disposition == verdict.Ungoverned
	}
	if v.CSVs == nil {
		a.Ungoverned = true
		for _, name := range names {
			a.Operators = append(a.Operators, Operator{CSV: name, Disposition: verdict.Ungoverned.String()})
		}
		a.Notes = append(a.Notes, "ungoverned: no OperatorPolicy governs namespace "+text.Name(ns.Name()))
	}
	a.Suffixes = suffixNotes(ns, a.Operators)
	a.Notes = slices.Concat(a.Notes, a.Suffixes, c.judgedBy(ns))
	return a
}

// policyNotes names what a policy governs, and the others that govern it as well.
func (c *Cluster) policyNotes(p *operatorpolicy.Policy) []string {
	if p.Package == "" || p.TargetNamespace == "" {
		return nil // a warning says so
	}
	governed := "package " + text.Name(p.Package) + " in namespace " + text.Name(p.TargetNamespace)
	notes := []string{"governs " + governed + onlyInforms(p)}
	if all := rules.Overlapping(c.Namespace(p.TargetNamespace), p.Package); p.Enforced && len(all) > 1 {
		var names []string
		for _, p := range all {
			names = append(names, p.Namespace+"/"+p.Name)
		}
		notes = append(notes, "installs, upgrades and approves nothing, because several enforced policies govern "+
			governed+": "+
			text.Names(names, 3)+"; leave one of them enforced")
	}
	return notes
}

func onlyInforms(p *operatorpolicy.Policy) string {
	if p.Enforced {
		return ""
	}
	return ", only informs"
}

// subscriptionNotes names the policies that apply.
func subscriptionNotes(s *olm.Subscription, ns *state.Namespace) (notes []string) {
	repaired := false
	for _, p := range ns.Policies() {
		if p.Governs(s.Spec.Package) {
			repaired = repaired || p.Enforced
			notes = append(notes, "governed by "+p.Source()+onlyInforms(p))
		}
	}
	if len(notes) == 0 {
		notes = append(notes, "ungoverned: no OperatorPolicy names package "+text.Name(s.Spec.Package)+" in namespace "+
			text.Name(ns.Name()))
	}
	if by := rules.RepairByHand(s, ns); by != "" && !repaired {
		notes = append(notes, by)
	}
	return notes
}

// judgedBy names the Constraints that apply in a namespace.
func (c *Cluster) judgedBy(ns *state.Namespace) (notes []string) {
	applicable := c.Constraints().Applicable(ns.ForConstraints())
	for _, d := range c.Constraints().Definitions() {
		switch {
		case slices.Contains(applicable, d):
			notes = append(notes, "judged by Constraint "+d.Name)
		case slices.ContainsFunc(d.Constraints,
			func(asked *constraint.Constraint) bool { return asked.Action == constraint.Warn }):
			notes = append(notes, "judged by Constraint "+d.Name+", only warns")
		}
	}
	return notes
}

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
