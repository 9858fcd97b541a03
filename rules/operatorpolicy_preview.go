package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/blang/semver/v4"
	"k8s.io/apimachinery/pkg/util/validation"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/change"
	"github.com/opgate/opgate/rules/facts"
	"github.com/opgate/opgate/rules/grant"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// preview warns of what a policy will and will not do.
type preview struct {
	*OperatorPolicyInput
	p *operatorpolicy.Policy
	v *verdict.Verdict
}

func (in *preview) warn(id verdict.RuleID, what, more string) {
	in.v.Add(id, verdict.Finding{What: what, Accepted: more})
}

// ineffective warns of what has no effect, and what would change that; of nothing if that is "".
func (in *preview) ineffective(what, more string) {
	if more != "" {
		in.warn(RuleOperatorPolicyIneffective, what, more)
	}
}

func (in *preview) policy() {
	p := in.p
	in.versions()
	if source := p.Catalog.Name; source != "" && !strings.Contains(source, "{{") {
		if problems := validation.IsDNS1123Subdomain(source); len(problems) > 0 {
			in.ineffective("spec.subscription.source "+text.Quote(source)+
				" is a name that no CatalogSource can have, so that nothing is installed from it",
				cmp.Or(operatorpolicy.NotASCII(source), problems[0]))
		}
	}
	if p.Group != nil && len(p.Group.Names) > 1 {
		in.warn(RuleOperatorPolicySeveralTargets, "spec.operatorGroup names several target namespaces, "+
			text.Names(p.Group.Names, verdict.MaxListed), oneTarget)
	}
	if p.MustNotHave {
		for field, set := range map[string]bool{"spec.catalog": p.CatalogImages != nil, "spec.consent": p.Consent != nil,
			"spec.minimumAge": p.Age.Holds(), "spec.approvalWindows": len(in.p.Object.Spec.ApprovalWindows) > 0,
			"spec.freezes": len(in.p.Object.Spec.Freezes) > 0, "spec.urgent": len(in.p.Object.Spec.Urgent) > 0} {
			if set {
				in.ineffective(field+" has no effect with complianceType mustnothave, which allows no installation",
					"remove it, or write complianceType musthave or mayhave")
			}
		}
	}
	in.settings()
	if p.Package == "" || p.TargetNamespace == "" {
		in.ineffective("the policy governs nothing until its package and namespace are found out on the cluster",
			"write spec.subscription.name and spec.subscription.namespace as plain text to have it in force at once")
		return
	}
	in.move()
	if p.Unreadable() != "" {
		return // a valid policy has template text, which is resolved only now
	}
	enforced, alike := p.Enforced, *p
	alike.Enforced = true // preview an informing policy too, as if it were enforced
	p, in.p = &alike, &alike
	ns := in.Namespace(p.TargetNamespace).WithPolicy(p)
	for _, other := range ns.Governing(p.Package) {
		if other.Key() == p.Key() {
			continue
		}
		more := "of the two only an enforced one acts and refuses"
		if enforced && other.Enforced {
			more = "while both are enforced neither installs, upgrades or approves anything, and both still refuse; keep one of them enforced"
		}
		in.warn(RuleOperatorPolicyOverlap, other.Source()+" also governs package "+p.Package+" in namespace "+
			p.TargetNamespace, more)
	}
	in.subscription(ns)
	in.suffixes(ns)
	for _, installed := range ns.Installed() {
		if what := uncovered(p, installed, in.Now); what != "" {
			in.warn(RuleOperatorPolicyUncovered, what, p.Acceptance())
		}
	}
	for _, plan := range ns.Plans() {
		if plan.AwaitsApproval() {
			in.plan(plan, ns)
		}
	}
}

// move warns of Subscriptions that stay when a policy is changed to another namespace or package.
func (in *preview) move() {
	p := in.p
	old := in.Old
	if old == nil || old.Object.Spec.ComplianceType != policyv1beta2.MustHave || !old.Enforced {
		return
	}
	if old.Package == p.Package && old.TargetNamespace == p.TargetNamespace {
		return
	}
	ns := in.Namespace(old.TargetNamespace)
	managed := func(other *operatorpolicy.Policy) bool { return other.Enforced && other.Key() != p.Key() }
	if slices.ContainsFunc(ns.Governing(old.Package), managed) {
		return
	}
	for _, s := range ns.Subscribers(old.Package) {
		in.warn(RuleOperatorPolicyUncovered, "Subscription "+s.Metadata.Key()+
			" stays, with what it installed, and is no longer covered by this policy",
			"delete it and its ClusterServiceVersion, or remove them with a mustnothave policy")
	}
}

// versions warns of entries of spec.versions that match nothing, or match more than they seem to, and of a release in
// spec.versionRange, of which ranges know nothing.
func (in *preview) versions() {
	p := in.p
	for _, entry := range p.Versions.Entries {
		name, digest, _ := strings.Cut(entry, "@")
		if _, err := semver.ParseTolerant(name); err == nil {
			in.ineffective("spec.versions has "+text.Quote(name)+
				", which looks like a version and not like the name of a ClusterServiceVersion",
				`names are matched exactly, for example "etcdoperator.v0.9.4"; for versions use spec.versionRange`)
		}
		if digest != "" && p.Versions.Lists(name) {
			in.ineffective("spec.versions has "+text.Quote(name)+" both with "+digest+" and without a digest",
				"without a digest it stands for any contents; remove that entry to bind the name to the digest")
		}
	}
	if p.VersionRange != nil && strings.Contains(p.VersionRange.String(), "+") {
		in.ineffective("spec.versionRange "+text.Quote(p.VersionRange.String())+
			" says more than a version, and what follows + is not compared",
			"every release of that version is in the range; list names in spec.versions, or read release in a Constraint")
	}
}

// uncovered returns how an installed ClusterServiceVersion violates a policy, or "".
func uncovered(p *operatorpolicy.Policy, installed state.Installed, now time.Time) string {
	if installed.Package != p.Package {
		return ""
	}
	if p.MustNotHave {
		if match, known := bundle.Forbids(p, installed.Name, installed.Version, olm.Catalog{}, now); match || !known &&
			(p.Catalog != olm.Catalog{}) && !p.Versions.Binds(installed.Name) {
			return installed.Name + " is installed in namespace " + p.TargetNamespace + " and forbidden by this policy"
		}
		return ""
	}
	if ok, _ := bundle.Covers(p, installed.Name, installed.Version, now); ok {
		return ""
	}
	return installed.Name + " is installed in namespace " + p.TargetNamespace + " and not covered by this policy"
}

// plan warns of the effect on one plan that waits for approval, if the policy applies to it.
func (in *preview) plan(plan *olm.InstallPlan, ns *state.Namespace) {
	p := in.p
	judged := JudgePlan(PlanInput{Plan: plan, Namespace: ns, Now: in.Now})
	concerned := slices.ContainsFunc(judged.CSVs, func(c verdict.CSV) bool { return c.Package == p.Package })
	ours := slices.IndexFunc(judged.Reasons, func(r verdict.Reason) bool { return r.From == p.Ref() })
	what := pendingText(&judged)
	switch {
	case ours >= 0:
		in.warn(RuleOperatorPolicyPending, what+" may not be approved under this policy", judged.Reasons[ours].Message)
	case !concerned:
	case judged.Decision == verdict.Allow:
		in.warn(RuleOperatorPolicyPending, what+" may be approved under this policy", "")
	default:
		in.warn(RuleOperatorPolicyPending, what+" may be approved under this policy, but not under all",
			judged.Reasons[0].Message)
	}
}

// settings warns of fields that cannot have the effect that their author will expect, and of what the policy needs and the
// installation withholds, unless its status names that from the start.
func (in *preview) settings() {
	p, spec, hold := in.p, &in.p.Object.Spec, string(policyv1beta2.CatalogHold)
	installs, deletion := !p.MustNotHave, "spec.deletion "+string(spec.Deletion)+" refuses no deletion"
	protects := spec.Deletion != "" && spec.Deletion != policyv1beta2.DeletionAllow
	consent, reviews := cmp.Or(spec.Consent, &policyv1beta2.Consent{}), p.Consent.Reviews(false) || p.Consent.Reviews(true)
	images := cmp.Or(p.CatalogImages, &operatorpolicy.CatalogImages{})
	held, missing := "every InstallPlan with package "+p.Package+" is held because of ", ""
	if p.Catalog.Namespace != "" {
		missing = in.Grants.MissingCatalog(p.Catalog.Namespace)
	}
	for _, s := range []struct {
		applies    bool
		what, more string
	}{
		{p.Catalog.Name != "" && p.Catalog.Namespace == "", "spec.subscription.source " + text.Quote(p.Catalog.Name) +
			" without spec.subscription.sourceNamespace matches a catalog of that name in any namespace",
			"it may be one that a tenant has made; set spec.subscription.sourceNamespace too"},
		{spec.ComplianceType == policyv1beta2.MayHave && spec.OperatorGroup != nil,
			"spec.operatorGroup has no effect with complianceType mayhave, which installs nothing",
			"remove it, or write complianceType musthave to have the operator installed"},
		{installs && spec.Consent != nil && !reviews, "spec.consent ignores every class of changes",
			"write Hold or Warn for one of " + classNames() + ", or remove spec.consent"},
		{installs && reviews && len(consent.Accepted) > 0 && !p.Consent.Holds(),
			fmt.Sprintf("spec.consent.accepted names %d digests, but no class is Hold", len(consent.Accepted)),
			"accepted digests only silence warnings; write Hold for the classes that need consent"},
		{installs && !images.Holds() && len(images.Accepted) > 0,
			fmt.Sprintf("spec.catalog.accepted names %d digests, but neither spec.catalog.image nor jump is %s",
				len(images.Accepted), hold), "the catalog may run any image; write spec.catalog.image: " + hold},
		{installs && spec.Catalog != nil && !images.Holds() && len(images.Accepted) == 0, "spec.catalog holds nothing",
			"write spec.catalog.image or jump: " + hold + ", or remove spec.catalog"},
		{installs && images.HoldsImage() && !images.HoldsJump() && images.MaxChangedPackages > 0,
			"spec.catalog.maxChangedPackages has no effect without spec.catalog.jump: " + hold, "write that, or remove it"},
		{installs && !p.Age.Holds() && len(spec.Urgent) > 0, "spec.urgent has no effect without spec.minimumAge",
			"write that, or remove it"},
		{installs && in.neverOpens(), "spec.approvalWindows and spec.freezes let no plan be approved within five years",
			"widen spec.approvalWindows, or end spec.freezes earlier"},
		{protects && !p.Enforced, deletion + " while the policy only informs", "write spec.remediationAction: enforce"},
		{protects && p.Enforced, deletion, in.Unbacked},
		{p.Enforced && p.MustNotHave && p.Deletion == policyv1beta2.DeletionDeny,
			"the policy is mustnothave and removes nothing while spec.deletion is Deny",
			"write spec.deletion: Allow to have the operator removed"},
		{spec.RemovalBehavior.CustomResourceDefinitions == policyv1beta2.RemovalDelete,
			"spec.removalBehavior.customResourceDefinitions Delete deletes none", in.Grants.Missing(grant.Definitions)},
		{spec.Consent != nil, held + "spec.consent", cmp.Or(in.Grants.Missing(grant.Contents), missing)},
		{p.Age.Holds(), held + "spec.minimumAge", missing},
		{images.Holds(), held + "spec.catalog", missing},
	} {
		if s.applies {
			in.ineffective(s.what, s.more)
		}
	}
}

// neverOpens reports whether windows and freezes let nothing be approved for as long as is looked ahead.
func (in *preview) neverOpens() bool {
	if !in.p.Calendar.Restricts() || in.Now.IsZero() {
		return false
	}
	when := in.p.Calendar.At(in.Now)
	return !when.Open && when.Opens.IsZero()
}

func classNames() string {
	names := make([]string, len(change.Reviewable))
	for i, class := range change.Reviewable {
		names[i] = string(class)
	}
	return text.Names(names, verdict.MaxListed)
}

// subscription warns of what OLM will not do for the Subscription that a policy asks for, in the words that this would
// get: those of the rules on Subscriptions that are previewed.
func (in *preview) subscription(ns *state.Namespace) {
	p := in.p
	if p.MustNotHave {
		return
	}
	sub := &olm.Subscription{}
	sub.Metadata.Namespace, sub.Metadata.Name = p.TargetNamespace, p.Package
	sub.Spec = olm.SubscriptionSpec{Package: p.Package, Channel: p.Channel, StartingCSV: p.StartingCSV,
		Source: p.Catalog.Name, SourceNamespace: p.Catalog.Namespace}
	subscribers, moments := ns.Subscribers(p.Package), []moment{always, ifCreated}
	if p.Object.Spec.ComplianceType == policyv1beta2.MayHave {
		moments[1] = ifAllowed
	}
	if len(subscribers) > 0 {
		moments = moments[:1]
	}
	if len(subscribers) == 1 {
		spec := &subscribers[0].Spec
		sub.Spec.Channel, sub.Spec.Source = cmp.Or(sub.Spec.Channel, spec.Channel), cmp.Or(sub.Spec.Source, spec.Source)
		sub.Spec.SourceNamespace = cmp.Or(sub.Spec.SourceNamespace, spec.SourceNamespace)
	}
	s := &SubscriptionInput{New: sub, Namespace: ns, Now: in.Now, policy: true}
	if in.Package != nil {
		s.Offered = in.Package(p.Package, sub.Catalog())
	}
	s.InstalledElsewhere = in.Copied != nil && in.Copied(p.Package, p.TargetNamespace) && p.Group.Targets()
	for i := range subscriptionRules {
		if r := &subscriptionRules[i]; slices.Contains(moments, r.previews) {
			r.judge(s, r.ID, in.v)
		}
	}
	in.offer(s)
}

// offer warns of a policy that allows nothing that OLM can install from the channel.
func (in *preview) offer(s *SubscriptionInput) {
	p := in.p
	channel := s.channel()
	if channel == nil || !p.RestrictsVersions() {
		return
	}
	where := "channel " + text.Name(channel.Name) + " of " + facts.CatalogName(s.Offered.Catalog)
	if len(offeredVersions(p, channel, in.Now)) == 0 {
		in.ineffective("no version in "+where+" is allowed", p.Acceptance()+"; the channel has "+entriesText(channel.Entries))
		return
	}
	for _, c := range s.Namespace.Installed() {
		newer := func(e catalog.Entry) bool {
			return coversEntry(p, e, in.Now) && !olm.OlderVersion(e.Version, c.Version)
		}
		if ok, _ := bundle.Covers(p, c.Name, c.Version, in.Now); ok || c.Package != p.Package ||
			slices.ContainsFunc(channel.Entries, newer) {
			continue
		}
		in.ineffective("no version in "+where+" that is allowed is newer than "+text.Name(c.Name)+", which is installed",
			"OLM never goes back; allow a newer one, or remove the operator and install it again")
	}
}
