package rules

import (
	"slices"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/state"
)

// StaleInput is the input of Stale.
type StaleInput struct {
	// Plan is a plan in Namespace, with its stored status.
	Plan      *olm.InstallPlan
	Namespace *state.Namespace
	// Packages returns what catalogs have. Default: what plans of the namespace are judged by.
	Packages state.Packages
	// CatalogsCurrent is set once catalogs that lag behind OLM surely have every version of the plan.
	CatalogsCurrent bool
}

// Stale returns, as a sentence, why a plan that waits cannot be what its Subscriptions ask for any more; "" if it can.
// OLM resolves nothing new in a namespace while a plan waits: it has to be deleted before OLM plans again.
func Stale(in StaleInput) string {
	if !in.Namespace.Waits(in.Plan) {
		return ""
	}
	csvs := carrier.OfPlan(in.Plan, in.Namespace)
	for i := range csvs {
		for _, s := range in.Namespace.Subscribers(csvs[i].Package) {
			if s.Status.InstallPlan.Name != in.Plan.Metadata.Name {
				continue
			}
			if why := in.unlike(&csvs[i], s); why != "" {
				return why
			}
		}
	}
	return in.orphan(csvs)
}

// unlike returns why a ClusterServiceVersion of the plan is not what a Subscription asks for.
func (in *StaleInput) unlike(c *carrier.Bundle, s *olm.Subscription) string {
	name, sub, start := text.Name(c.Name), "Subscription "+text.Name(s.Metadata.Name), s.Spec.StartingCSV
	if start != "" && start != c.Name && !in.Namespace.Installs(s.Status.InstalledCSV) {
		return "it installs " + name + ", and " + sub + " starts with " + text.Name(start)
	}
	pkg := in.Namespace.PackageOf(c.Package, s.Catalog())
	if in.Packages != nil {
		pkg = in.Packages(c.Package, c.Name, s.Catalog())
	}
	if pkg == nil || len(pkg.Channels) == 0 {
		return ""
	}
	channel := pkg.Channel(s.Spec.Channel)
	// without a channel OLM takes any
	if channel != nil && channel.Has(c.Name) || s.Spec.Channel == "" && pkg.Has(c.Name) {
		return ""
	}
	if !in.CatalogsCurrent && !pkg.Has(c.Name) && slices.Contains(c.Catalogs, s.Catalog()) {
		return "" // the package server may not know it yet
	}
	return "it installs " + name + ", which channel " + text.Name(s.Spec.Channel) + " of catalog " +
		text.Name(s.Spec.SourceNamespace) + "/" +
		text.Name(s.Spec.Source) + " does not have, and " + sub + " follows that"
}

// orphan returns why the plan brings a package that nothing asks for. What requires it may be in the plan or installed.
func (in *StaleInput) orphan(csvs []carrier.Bundle) string {
	planned := len(csvs)
	for _, c := range in.Namespace.Installed() {
		csvs = append(csvs, carrier.Bundle{Bundle: c.Bundle})
	}
	wanted := make([]bool, len(csvs))
	var queue []int
	for i := range csvs {
		if !csvs[i].Described || csvs[i].Package == "" || constraint.BringsOwn(csvs[i].Properties) {
			return "" // what it is, or requires, is not known
		}
		if wanted[i] = i >= planned || len(in.Namespace.Subscribers(csvs[i].Package)) > 0; wanted[i] {
			queue = append(queue, i)
		}
	}
	carrier.AlongRequired(csvs, queue, func(i, _ int) bool {
		entered := !wanted[i]
		wanted[i] = true
		return entered
	})
	i := slices.Index(wanted, false)
	if i < 0 {
		return ""
	}
	return "it installs " + text.Name(csvs[i].Name) + " of package " + text.Name(csvs[i].Package) +
		", which has no Subscription and which nothing requires"
}

// StaleAdvice returns what to do about a stale plan, as a sentence.
func StaleAdvice(plan *olm.InstallPlan, why string) string {
	return "the InstallPlan " + text.Name(plan.Metadata.Name) + " is stale: " + why +
		"; delete it (kubectl delete installplan " +
		text.Name(plan.Metadata.Name) + " -n " + text.Name(plan.Metadata.Namespace) + "), and OLM creates a new one"
}
