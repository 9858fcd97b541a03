package compliance

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
)

// catalogSource reports whether the catalog of the operator is healthy. The condition is True if it
// is not.
func (e *evaluation) catalogSource() Condition {
	tolerated := e.config.CatalogSourceUnhealthy == policyv1beta2.ConfigCompliant
	f := Condition{Type: TypeCatalogSourcesUnhealthy, Status: statusIf(!tolerated)}
	o := olm.ObjectMeta{Namespace: e.catalog.Namespace, Name: e.catalog.Name}
	name := named(&o)
	state, reason := compliantIf(tolerated), relatedMissing
	var live *olm.CatalogSource
	if o.Name != "" && o.Namespace != "" {
		live = e.CatalogSource(e.catalog)
	}
	switch {
	case o.Name == "" || o.Namespace == "":
		f.Reason, f.Message = "CatalogSourcesNotFound", "the CatalogSource is not known, because the package "+
			e.wanted.name+" was not (yet) found in "+e.catalogAsked()
		o.Name = cmp.Or(o.Name, noName)
	case live == nil:
		f.Reason, f.Message = "CatalogSourcesNotFound", "CatalogSource "+name+" was not found"
	case live.Status.Connection.State == "":
		// Nothing was observed of it yet. Tools would ignore another condition type.
		f.Reason, f.Message, reason = "LastObservedUnknown", "CatalogSource "+
			name+" was found but its state is not known yet", relatedUnknownState
	case !live.Healthy():
		f.Reason, f.Message, reason = "CatalogSourcesFoundUnhealthy", "CatalogSource "+
			name+" was found but is unhealthy: its state is "+text.Quote(live.Status.Connection.State), relatedUnhealthy
	default:
		f.Status, f.Reason, f.Message = metav1.ConditionFalse, "CatalogSourcesFound", "CatalogSource was found"
		state, reason = policyv1beta2.Compliant, relatedFound
	}
	f.Related = []policyv1beta2.RelatedObject{e.related(kindCatalogSource, o, state, reason)}
	for _, other := range e.blocking() {
		f.Status, f.Reason = statusIf(!tolerated), "CatalogSourcesFoundUnhealthy"
		f.Message += "; CatalogSource " + named(&other.Metadata) + " is unhealthy: its state is " +
			text.Quote(other.Status.Connection.State) + ", and OLM resolves nothing in namespace " +
			e.wanted.namespace + " until it is healthy or deleted"
		f.Related = append(f.Related, e.related(kindCatalogSource, other.Metadata, compliantIf(tolerated),
			relatedUnhealthy))
	}
	if tolerated && f.Reason != "CatalogSourcesFound" { // status and related objects look as if all were well
		f.Message += "; policy compliance is not impacted due to spec.complianceConfig.catalogSourceUnhealthy"
	}
	return f
}

// blocking returns the unhealthy CatalogSources, besides the operator's own, that keep OLM from resolving the
// Subscription.
func (e *evaluation) blocking() []*olm.CatalogSource {
	if e.subscription == nil {
		return nil
	}
	found, _ := Prevented(e.subscription, e.Catalogs, e.CatalogSource)
	return slices.DeleteFunc(found, func(c *olm.CatalogSource) bool {
		return c.Metadata.Namespace == e.catalog.Namespace && c.Metadata.Name == e.catalog.Name
	})
}

// Prevented reports whether an error has kept OLM from resolving a Subscription, and returns the unhealthy
// CatalogSources that cause that. OLM resolves from all catalogs in the namespace and in the one for global catalogs,
// or not at all. The global one is that of the Subscription's catalog, if it is another namespace; else only OLM's
// message names it ("error using catalogsource olm/community: ...").
func Prevented(
	s *olm.Subscription, catalogs []olm.Catalog, get func(olm.Catalog) *olm.CatalogSource,
) (by []*olm.CatalogSource, prevented bool) {
	failed := s.Condition(TypeResolutionFailed)
	if failed == nil || strings.EqualFold(failed.Reason, reasonUnsatisfiable) {
		return nil, false
	}
	for _, c := range catalogs {
		if c.Namespace != s.Metadata.Namespace && c.Namespace != s.Spec.SourceNamespace &&
			!strings.Contains(failed.Message, c.Namespace+"/"+c.Name+":") {
			continue
		}
		if live := get(c); live != nil && !live.Healthy() {
			by = append(by, live)
		}
	}
	return by, true
}

// CatalogRecovered reports whether OLM could not resolve a Subscription because of a CatalogSource, and none is
// unhealthy now. OLM tries nine times within two seconds. A catalog that is deleted does not make it resolve again, and
// one that is healthy again only where it is used.
func CatalogRecovered(s *olm.Subscription, catalogs []olm.Catalog, get func(olm.Catalog) *olm.CatalogSource) bool {
	by, prevented := Prevented(s, catalogs, get)
	return prevented && len(by) == 0 && strings.Contains(s.Condition(TypeResolutionFailed).Message, "catalogsource")
}

// deprecations reports whether the catalog deprecates the package, the channel or the installed version, in
// this order; the first one is named. There is no condition if the catalog is not known, unless the
// policy depends on it: then it is NonCompliant for that reason.
func (e *evaluation) deprecations() []Condition {
	f := Condition{Type: TypeNoDeprecations, Status: metav1.ConditionFalse}
	if e.manifest == nil {
		if e.config.DeprecationsPresent == policyv1beta2.ConfigCompliant {
			return nil
		}
		f.Status, f.Reason = metav1.ConditionUnknown, "PackageManifestNotFound"
		f.Message = "whether " + e.wanted.name +
			" is deprecated cannot be determined, because the package was not (yet) found in " + e.catalogAsked()
		return []Condition{f}
	}
	deprecated := func(reason, what, why string) []Condition {
		f.Reason, f.Message = reason, "the requested "+what+" is deprecated: "+text.Truncate(why, foreignText)
		return []Condition{f}
	}
	if why := e.manifest.Deprecation; why != "" {
		return deprecated("PackageDeprecated", "package "+e.wanted.name, why)
	}
	if channel := e.manifest.Channel(e.channel); channel != nil {
		if channel.Deprecation != "" {
			return deprecated("ChannelDeprecated", "channel "+text.Name(channel.Name), channel.Deprecation)
		}
		for _, entry := range channel.Entries {
			if e.csv != nil && entry.Name == e.csv.Metadata.Name && entry.Deprecation != "" {
				return deprecated("BundleDeprecated", "bundle "+text.Name(entry.Name), entry.Deprecation)
			}
		}
	}
	f.Status, f.Reason = metav1.ConditionTrue, "Recommended"
	f.Message = "the requested package, channel and bundle are recommended"
	return []Condition{f}
}

// minorVersion matches channels that are named after a minor version, such as stable-1.9 or v4.14.x.
var minorVersion = regexp.MustCompile(`^([A-Za-z-]*)(\d+)\.(\d+)(\.x)?$`)

// minorChannel reports whether a channel for a later minor version exists. The channel is never changed.
func (e *evaluation) minorChannel() Condition {
	switch {
	case e.Policy.Spec.IsMustNotHave():
		return skipped("the policy is mustnothave")
	case e.Policy.Spec.EffectiveUpgradeApproval() != policyv1beta2.UpgradeApprovalAutomatic:
		return skipped("spec.upgradeApproval is not Automatic")
	case e.manifest == nil:
		return skipped("the package " + e.wanted.name + " was not (yet) found in " + e.catalogAsked())
	}
	later := e.laterChannels()
	if len(later) == 0 {
		return condition(TypeMinorChannelUpgradeAvailable, metav1.ConditionTrue, "Recommended",
			"there is no channel for a later minor version")
	}
	return condition(TypeMinorChannelUpgradeAvailable,
		statusIf(e.config.MinorChannelUpgradeAvailable != policyv1beta2.ConfigNonCompliant), "UpgradeAvailable",
		"a later minor version is available in other channels: "+text.Names(later, maxListed))
}

func skipped(why string) Condition {
	return condition(TypeMinorChannelUpgradeAvailable, metav1.ConditionTrue, "Skipped",
		"channels for later minor versions were not looked for, because "+why)
}

// laterChannels lists the channels that differ from the Subscription's only by a higher minor version.
func (e *evaluation) laterChannels() []string {
	ours := minorVersion.FindStringSubmatch(e.channel)
	if ours == nil {
		return nil
	}
	minor, err := strconv.ParseUint(ours[3], 10, 64)
	if err != nil {
		return nil
	}
	var later []string
	for _, channel := range e.manifest.Channels {
		m := minorVersion.FindStringSubmatch(channel.Name)
		if m == nil || m[1] != ours[1] || m[2] != ours[2] || m[4] != ours[4] {
			continue
		}
		if n, err := strconv.ParseUint(m[3], 10, 64); err == nil && n > minor {
			later = append(later, channel.Name)
		}
	}
	slices.Sort(later)
	return slices.Compact(later)
}

// passing is how long a message must stand to be kept although the next one reports the same compliance. An upgrade
// changes the message at every step of OLM, and would otherwise fill the history within seconds.
const passing = 10 * time.Second

// acted matches the messages that report what was done for the policy: they stand until the next evaluation only.
var acted = regexp.MustCompile(` was (created|updated|deleted|linked again)\b`)

// nextHistory returns the history, newest first, with a message that is reported now, cut to most entries. Kept are the
// first message after every change of compliance, the last one before it, what was done for the policy, and all that
// stood long enough to be read; the newest entry always has the present message.
func nextHistory(
	history []policyv1beta2.HistoryEvent, message string, now time.Time, most int,
) []policyv1beta2.HistoryEvent {
	next := slices.Clone(history)
	if len(next) > 1 && next[0].Message != message && now.Sub(next[0].LastTimestamp.Time) < passing &&
		sameCompliance(next[0].Message, message) && sameCompliance(next[1].Message, message) &&
		!acted.MatchString(next[0].Message) {
		next = next[1:]
	}
	if len(next) == 0 || next[0].Message != message {
		at := metav1.NewMicroTime(now.Truncate(time.Microsecond))
		next = slices.Insert(next, 0, policyv1beta2.HistoryEvent{LastTimestamp: at, Message: message})
	}
	return next[:min(len(next), most)]
}

// sameCompliance reports whether two messages begin with the same state.
func sameCompliance(a, b string) bool {
	of, _, _ := strings.Cut(a, ";")
	return strings.HasPrefix(b, of+";")
}

const reasonRefused = "InstallPlanRefused"

// refused adds the running plans that cannot finish to the condition on InstallPlans: the plan of the Subscription,
// whatever refuses its steps, and those of other operators of which this policy refuses a step, such as a dependency.
// OLM repeats a refused step for as long as the plan exists, so a forbidden operator would be installed as soon as no
// replica answers. That is why such a plan is NonCompliant.
func (e *evaluation) refused(out Outcome) Outcome {
	f := find(out.Conditions, TypeInstallPlan)
	if f == nil {
		return out
	}
	followed, _ := e.plan()
	var messages []string
	for _, plan := range e.Namespace.Plans() {
		var why []string
		for _, r := range rules.RefusedSteps(plan, e.Namespace, e.Now) {
			if plan == followed || r.From == e.Rules.Ref() {
				why = append(why, r.Message)
			}
		}
		if len(why) == 0 {
			continue
		}
		messages = append(messages, e.unfinished(plan, why))
		f.Related = withPlan(f.Related, e.related(kindInstallPlan, plan.Metadata, policyv1beta2.NonCompliant,
			"The InstallPlan is "+plan.Status.Phase))
	}
	if len(messages) > 0 {
		f.Status, f.Reason, f.Message = metav1.ConditionFalse, reasonRefused, strings.Join(messages, "; ")
	}
	return out
}

// holding adds the plans that this policy keeps from being approved, and that its Subscription does not wait for, to
// the condition on InstallPlans: such as one that brings its package as a dependency. They do not count: the policy does
// what it is for.
func (e *evaluation) holding(out Outcome) Outcome {
	f := find(out.Conditions, TypeInstallPlan)
	if f == nil {
		return out
	}
	followed, _ := e.plan()
	for _, plan := range e.Namespace.Plans() {
		var why []string
		for _, r := range e.Approvals[plan.Metadata.Name].Reasons {
			if r.From == e.Rules.Ref() {
				why = append(why, r.Message)
			}
		}
		if len(why) == 0 || plan == followed && f.Reason == reasonRequiresApproval {
			continue
		}
		message := "the InstallPlan " + planName(plan) + " for [" +
			text.Names(slices.Sorted(slices.Values(plan.Spec.CSVNames)), maxListed) +
			"] awaits approval, which this policy refuses: " + sentences(why)
		if f.Reason == reasonNoPlans || f.Reason == reasonNothingToPass {
			f.Reason, f.Message = reasonRequiresApproval, message
		} else {
			f.Message += "; " + message
		}
		f.Related = withPlan(f.Related, e.related(kindInstallPlan, plan.Metadata, policyv1beta2.Compliant,
			"The InstallPlan is "+plan.Status.Phase))
	}
	return out
}

// withPlan returns related objects with a plan, which replaces an entry for it, or for none.
func withPlan(related []policyv1beta2.RelatedObject, plan policyv1beta2.RelatedObject) []policyv1beta2.RelatedObject {
	related = slices.DeleteFunc(related, func(r policyv1beta2.RelatedObject) bool {
		return r.Object.Metadata.Name == plan.Object.Metadata.Name || r.Object.Metadata.Name == noName
	})
	return append(related, plan)
}

// unfinished says why an approved plan cannot finish, and what would end it. Deleting the plan is enough where a
// Subscription is Manual: the next one has to be approved. OLM replaces a deleted plan of Automatic Subscriptions by
// one that it approves again.
func (e *evaluation) unfinished(plan *olm.InstallPlan, why []string) string {
	message := "the InstallPlan " + planName(plan) +
		" is approved and cannot finish, since OLM repeats what is refused: " + sentences(why) +
		"; to end that, change what refuses it, or delete the InstallPlan"
	var automatic []string
	for _, s := range e.Namespace.Subscriptions() {
		if s.Status.InstallPlan.Name == plan.Metadata.Name && s.Spec.Package != e.wanted.name {
			automatic = append(automatic, s.Metadata.Namespace+"/"+s.Metadata.Name)
		}
	}
	if len(automatic) > 0 {
		message += " together with the Subscriptions that OLM would write another one for: " +
			text.Names(automatic, maxListed)
	}
	return message + rules.OverrideText(plan, e.Now)
}
