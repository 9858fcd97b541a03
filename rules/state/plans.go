package state

import (
	"crypto/sha256"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/change"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/verdict"
)

// Waits reports whether a plan waits for approval: it requires approval, a Subscription names it as its current plan,
// and a part of it is not installed yet.
func (n *Namespace) Waits(plan *olm.InstallPlan) bool {
	return plan.AwaitsApproval() && n.IsCurrent(plan) && slices.ContainsFunc(plan.Spec.CSVNames, func(name string) bool {
		return !slices.ContainsFunc(n.Installed(), func(c Installed) bool { return c.Name == name && !n.gone(&c) })
	})
}

// gone reports whether only a Subscription shows that something is installed, which OLM does not find any more: it had
// taken the copy of one that another namespace installs for all of them for its own.
func (n *Namespace) gone(c *Installed) bool {
	return c.Spec == nil && slices.ContainsFunc(n.Subscriptions(), func(s *olm.Subscription) bool {
		return s.Status.InstalledCSV == c.Name && s.Status.State == olm.StateUpgradePending
	})
}

// IsCurrent reports whether a Subscription names a plan as its current plan. Approving another one would bring an
// earlier version.
func (n *Namespace) IsCurrent(plan *olm.InstallPlan) bool {
	return slices.ContainsFunc(n.Subscriptions(),
		func(s *olm.Subscription) bool { return s.Status.InstallPlan.Name == plan.Metadata.Name })
}

// Channels returns the channels that the Subscriptions to a package follow.
func (n *Namespace) Channels(pkg string) []string {
	var channels []string
	for _, s := range n.Subscribers(pkg) {
		channels = append(channels, s.Spec.Channel)
	}
	return channels
}

// StepAccounts returns the ServiceAccounts as which OLM may write steps of plans here: those of OperatorGroups, and of
// plans that run.
func (n *Namespace) StepAccounts() []string {
	accounts := sets.New[string]()
	for _, g := range n.Groups() {
		accounts.Insert(g.Spec.ServiceAccount)
	}
	for _, p := range n.Plans() {
		if p.Running() {
			accounts.Insert(p.Status.ServiceAccount.Name)
		}
	}
	return sets.List(accounts.Delete(""))
}

// Stored returns an installed ClusterServiceVersion, nil if it is not installed in the namespace, or if only a
// Subscription shows it.
func (n *Namespace) Stored(csv string) *Installed {
	for i := range n.Installed() {
		if c := &n.Installed()[i]; c.Name == csv && c.Spec != nil {
			return c
		}
	}
	return nil
}

// Installs reports whether Stored returns a ClusterServiceVersion.
func (n *Namespace) Installs(csv string) bool { return csv != "" && n.Stored(csv) != nil }

// Installed is the bundle of an installed ClusterServiceVersion; with the Channel and the Catalog of the Subscription
// that installed it, and without a Spec if only the status of a Subscription shows it.
type Installed struct {
	olm.Bundle
	// UID is that of the object, empty if only a Subscription shows it.
	UID string
	// NotUpgradeable is why the operator must not be replaced now, by its OperatorCondition; empty if it may be.
	NotUpgradeable string
}

// InstallsOperator reports whether a ClusterServiceVersion installs something in its namespace: not a copy of one that is
// installed in another namespace, and not a virtual operator, which installs nothing.
func InstallsOperator(c *olm.CSV) bool { return c.Metadata.Labels.CopiedFrom == "" && !c.IsVirtual() }

// PlanThatInstalled returns the completed plan that wrote a ClusterServiceVersion. Of several, one may be forged: then
// none is.
func (n *Namespace) PlanThatInstalled(csv string) string {
	found := ""
	for _, plan := range n.Plans() {
		if !plan.Installed(csv) || n.Planted(plan, csv) {
			continue
		}
		if found != "" {
			return ""
		}
		found = plan.Metadata.Name
	}
	return found
}

// Changes returns what a plan changes; nil while that is not known. It never waits: the contents are read in the
// background. The result is shared and must not be modified.
type Changes func(plan *olm.InstallPlan, csvs []Replacement) *PlanChanges

// Packages returns a package of a catalog, of which a version is read; nil while it is not known.
type Packages func(pkg, csv string, source olm.Catalog) *catalog.Package

// Replacement is a ClusterServiceVersion of a plan, and what it replaces.
type Replacement struct {
	CSV, Package, Version, Release string
	// Channel is that of the Subscription, if there is exactly one; Catalog is the catalog that the plan names.
	Channel string
	Catalog olm.Catalog
	// From, FromVersion and FromRelease are the installed ClusterServiceVersion of the package, empty for a first
	// installation. FromDigest is the digest of its contents.
	From, FromVersion, FromRelease string
	FromDigest                     [sha256.Size]byte
	// FromPlan is the InstallPlan that installed it, which has all that its bundle brought; empty if there is none, or
	// not exactly one.
	FromPlan string
}

// PlanChanges is what a plan changes.
type PlanChanges struct {
	// Plan is the olm.InstallPlan.ContentsDigest of what was read.
	Plan [sha256.Size]byte
	// Replacements are those that the plan was compared for.
	Replacements []Replacement
	// ByCSV has a change set for each ClusterServiceVersion of the plan, by name.
	ByCSV map[string]*change.Set
	// Bundles has the contents of each as OLM will write them, by name: it unpacks a bundle image into a ConfigMap before
	// it writes the plan, which refers to that.
	Bundles map[string]*olm.Bundle
}

// Readings are what was read, besides the objects of a namespace, for unfinished plans to be judged by.
type Readings struct {
	// Packages are those of the plans; nil where one is not known.
	Packages map[PackageKey]*catalog.Package
	// Changes are what the plans change; nil where that is not known.
	Changes map[PlanKey]*PlanChanges
}

// PackageKey identifies a package in a catalog.
type PackageKey struct {
	Name   string
	Source olm.Catalog
}

// PlanKey identifies a plan: OLM reuses names, and manifests that no API server has stored have no UID.
type PlanKey struct{ uid, name string }

// KeyOf returns the key of a plan.
func KeyOf(p *olm.InstallPlan) PlanKey { return PlanKey{p.Metadata.UID, p.Metadata.Name} }

// WithReadings returns the namespace with what was read.
func (n *Namespace) WithReadings(r Readings) *Namespace {
	with := *n
	with.readings = r
	return &with
}

// PackageOf returns what was read of a package of a catalog; nil if that is not known.
func (n *Namespace) PackageOf(pkg string, source olm.Catalog) *catalog.Package {
	return n.known().readings.Packages[PackageKey{pkg, source}]
}

// JudgesByPackage reports whether plans are judged by a package of a catalog.
func (n *Namespace) JudgesByPackage(pkg string) bool {
	for key := range n.known().readings.Packages {
		if key.Name == pkg {
			return true
		}
	}
	return false
}

// ReadingOf returns what was read of a plan, or why nothing is known.
func (n *Namespace) ReadingOf(plan *olm.InstallPlan) (known *PlanChanges, unknown string) {
	switch known = n.known().readings.Changes[KeyOf(plan)]; {
	case known == nil:
		return nil, "its contents are not read yet"
	case known.Plan != plan.ContentsDigest():
		return nil, "the contents that were read are not those of this InstallPlan"
	}
	return known, ""
}

// Suspended returns a hold for a policy or Constraint that a Policy has suspended because of its dependencies.
// Pending is that Policy, as namespace/name, or any other value of the annotation; if it is empty nothing is held.
// Waits is what it waits for, "" where only the annotation is known.
func Suspended(pending, waits, what string) verdict.Finding {
	if pending == "" {
		return verdict.Finding{}
	}
	namespace, name, named := strings.Cut(pending, "/")
	switch {
	case !named:
		waits = "annotation " + metakey.Pending + " says " + text.Quote(pending)
	case waits == "":
		waits = dependency.PolicyRef(namespace, name).String() + " waits for its dependencies"
	}
	return verdict.OnHold(what, dependency.ReasonDependencyPending+": "+waits)
}

// Approval returns the installPlanApproval that a Subscription under a policy must have in the namespace, and why.
// With Automatic OLM approves by itself, so it is right only if every version and every upgrade is allowed.
func (n *Namespace) Approval(p *operatorpolicy.Policy) (mode, because string) {
	if because, manual := p.WantsManual(); manual {
		return olm.ApprovalManual, because
	}
	if n.Constrained() || n.known().judging != nil {
		return olm.ApprovalManual, n.JudgeText()
	}
	if c := n.NotUpgradeable(p.Package, ""); c != nil {
		return olm.ApprovalManual, text.Name(c.Name) + " is not upgradeable now"
	}
	return olm.ApprovalAutomatic, "spec.upgradeApproval is Automatic and every version is allowed"
}

// JudgeText names what requires plans of a namespace to be judged.
func (n *Namespace) JudgeText() string {
	source, found := n.FirstJudge()
	if !found {
		return ""
	}
	return "each plan has to be judged by " + source.String() + " first"
}

// FirstJudge returns what has to judge each plan of a namespace before OLM runs it: a Constraint that may refuse
// something here, or a policy.
func (n *Namespace) FirstJudge() (source verdict.PolicyRef, found bool) {
	if applicable := n.Constraints().Applicable(n.ForConstraints()); len(applicable) > 0 {
		return ConstraintRef(applicable[0]), true
	}
	if n.known().judging != nil {
		return n.judging.Ref(), true
	}
	return verdict.PolicyRef{}, false
}
