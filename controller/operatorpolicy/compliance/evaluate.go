// Package compliance evaluates an OperatorPolicy: its conditions and the writes that it requires.
//
// It is pure, like package rules, which it builds on: its input is one Input with the observed state, its
// result an Outcome with a condition for each condition type and the writes of an enforced policy.
// Package operatorpolicy gathers the Input and carries out the writes.
package compliance

import (
	"cmp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/bundle"
	"github.com/opgate/opgate/rules/grant"
)

// The reasons that several condition types share.
const (
	reasonInvalid  = "InvalidPolicySpec"
	reasonExisting = "ExistingInstallation"
)

// Evaluate returns the conditions and the actions of a policy. It is total: any object on the cluster
// is described and never stops the evaluation of the others.
func Evaluate(in *Input) Outcome {
	w, problems := in.wanted()
	e := newEvaluation(in, w)
	if len(problems) == 0 {
		problems = e.catalogProblems()
	}
	switch {
	case len(problems) > 0:
		return e.excepted(e.invalid(problems))
	case in.Rules.Pending != "":
		return e.excepted(e.escaped(e.suspended(e.refused(e.holding(e.valid())))))
	}
	return e.excepted(e.escaped(e.refused(e.holding(e.valid()))))
}

// valid returns the outcome of a valid policy.
func (e *evaluation) valid() (out Outcome) {
	switch spec := &e.Policy.Spec; {
	case spec.IsMustNotHave():
		out = e.besidesRemoval(removal(e.Input))
		out.Conditions = slices.Concat([]Condition{validated()}, out.Conditions, []Condition{e.minorChannel()})
		return out
	case spec.ComplianceType == policyv1beta2.MayHave:
		out = e.mayhave()
	default:
		out = e.musthave()
	}
	if e.upgrade != nil { // evaluated again when it has taken too long
		out.again(e.upgrade.until.Sub(e.Now) + time.Second)
	}
	out.Waiting = e.waiting
	return out
}

// besidesRemoval repairs the Subscription of a version that the policy does not forbid.
func (e *evaluation) besidesRemoval(out Outcome) Outcome {
	subscription := find(out.Conditions, TypeSubscription)
	csv := rules.Lost(e.subscription, e.Namespace.CSVs())
	if subscription == nil || csv == nil || len(out.Actions) > 0 {
		return out
	}
	forbidden, known := bundle.Forbids(e.Rules, csv.Metadata.Name, csv.Bundle.Version, e.subscription.Catalog(), e.Now)
	if known && !forbidden {
		out.Actions = e.relink(&out, subscription)
	}
	return out
}

// evaluation is an Input with values that several conditions need.
type evaluation struct {
	*Input
	wanted *wanted
	// config is complianceConfig with all defaults set.
	config policyv1beta2.ComplianceConfig
	// enforced reports whether actions are allowed; never for a policy that is not valid.
	enforced bool

	// subscription is the policy's, nil if there is none; duplicates are the other ones to the same package.
	subscription *olm.Subscription
	duplicates   []*olm.Subscription
	// csv is the installed ClusterServiceVersion of the package, nil if there is none. It is
	// unlinked if the Subscription does not refer to it.
	csv      *olm.CSV
	unlinked bool
	// upgrade is the one in progress, nil if there is none. Waiting is that of the Outcome.
	upgrade *upgrade
	waiting string
	// manifest is the package in the catalog of the existing or desired Subscription; nil if not known.
	manifest *catalog.Package
	catalog  olm.Catalog
	channel  string
}

func newEvaluation(in *Input, w *wanted) *evaluation {
	e := &evaluation{Input: in, wanted: w, config: in.Policy.Spec.ComplianceConfig,
		enforced: in.Policy.Spec.IsEnforced()}
	// Defaults for an object that is older than complianceConfig or never passed the webhook.
	for _, change := range rules.NormalizeOperatorPolicy(in.Policy, nil) {
		if filled, ok := change.Value.(policyv1beta2.ComplianceConfig); ok {
			e.config = filled
		}
	}
	e.subscription, e.duplicates = in.subscribed(w.name)
	e.csv, e.unlinked = e.installed()
	e.upgrade = e.upgrading(e.csv)

	asked := in.Policy.Spec.Subscription
	e.catalog, e.channel = olm.Catalog{Namespace: asked.SourceNamespace, Name: asked.Source}, asked.Channel
	if sub := e.subscription; sub != nil {
		e.catalog.Namespace = cmp.Or(e.catalog.Namespace, sub.Catalog().Namespace)
		e.catalog.Name = cmp.Or(e.catalog.Name, sub.Catalog().Name)
		e.channel = cmp.Or(e.channel, sub.Spec.Channel)
	}
	if in.Policy.Spec.IsMustNotHave() {
		return e // the catalog is not needed
	}
	if e.manifest = in.Package(e.catalog); e.manifest != nil {
		e.catalog = e.manifest.Catalog
		e.channel = cmp.Or(e.channel, e.manifest.DefaultChannel)
	}
	return e
}

func validated() Condition {
	return condition(TypeValidPolicySpec, metav1.ConditionTrue, "PolicyValidated", "the policy spec is valid")
}

// invalid describes a policy that is not valid. No object is evaluated, since the policy does not say
// reliably which, and nothing is written.
func (e *evaluation) invalid(problems []string) Outcome {
	out := Outcome{InstalledVersion: e.installedVersion()}
	unknown := func(conditionType string) Condition {
		f := condition(conditionType, metav1.ConditionUnknown, reasonInvalid,
			"the status of the "+kindOf[conditionType]+" cannot be determined, since the policy is not valid")
		f.KeepRelated = true
		return f
	}
	out.Conditions = []Condition{
		condition(TypeValidPolicySpec, metav1.ConditionFalse, reasonInvalid, sentences(problems)),
		unknown(TypeOperatorGroup),
		unknown(TypeSubscription),
		unknown(TypeInstallPlan),
		condition(TypeClusterServiceVersion, metav1.ConditionFalse, "RelevantCSVNotFound",
			"no ClusterServiceVersion was looked for, since the policy is not valid",
			e.nothing(kindClusterServiceVersion, relatedNoCSV)...),
		condition(TypeCustomResourceDefinition, metav1.ConditionTrue, reasonNoCRDs,
			"no CustomResourceDefinitions were looked for, since the policy is not valid",
			e.nothing(kindCustomResourceDefinition, relatedNoCRDs)...),
	}
	if e.Policy.Spec.IsMustNotHave() {
		deployments, catalogs := deploymentsNotApplicable(), catalogNotApplicable()
		deployments.KeepRelated, catalogs.KeepRelated = true, true
		out.Conditions = append(out.Conditions, deployments, catalogs)
	} else {
		out.Conditions = append(out.Conditions,
			condition(TypeDeployment, metav1.ConditionTrue, reasonNoDeployments,
				"no Deployments were looked for, since the policy is not valid",
				e.nothing(kindDeployment, relatedNoDeployments)...),
			unknown(TypeCatalogSourcesUnhealthy))
	}
	out.Conditions = append(out.Conditions, skipped("the policy is not valid"))
	return out
}

// musthave evaluates a valid policy whose operator must be installed.
func (e *evaluation) musthave() Outcome {
	if existing := e.existingInstallation(); existing != nil {
		return e.existing(existing)
	}
	if m := e.migrated(); m != nil && e.subscription == nil && len(e.duplicates) == 0 {
		return e.handedOver(m)
	}
	var out Outcome
	nowhere := !e.namespaceExists() &&
		e.Grants.Missing(grant.Namespaces) != "" // nothing can be created in a namespace that does not exist
	add := func(f Condition, actions []Action) {
		out.Conditions = append(out.Conditions, f)
		if !nowhere {
			out.Actions = append(out.Actions, actions...)
		}
	}
	add(e.operatorNamespace())
	group, actions, usable := e.operatorGroup()
	add(group, actions)
	e.completeFields()
	subscription, actions := e.compareSubscription(usable)
	if subscription.Reason == reasonUnsatisfiable || !e.enforced {
		actions = append(actions, e.relink(&out, &subscription)...)
	}
	if subscription.Reason == reasonRemoved {
		out.After = migrationGrace - e.Now.Sub(subscription.Since.Time)
	}
	add(e.besidesOLMv1(subscription), actions)
	for _, f := range []Condition{e.installPlan(), e.installedCSV(), e.crds(), e.deployments(), e.catalogSource()} {
		add(f, nil)
	}
	out.Conditions = append(out.Conditions, e.deprecations()...)
	add(e.minorChannel(), nil)
	out.Conditions = append(out.Conditions, e.subscriptionConditions()...)
	out.InstalledVersion = e.installedVersion()
	return out
}

// operatorNamespace returns the condition on the spec of a valid policy: it reports whether the namespace
// exists, which readers of the status know only by its text.
func (e *evaluation) operatorNamespace() (Condition, []Action) {
	if e.namespaceExists() {
		return validated(), nil
	}
	f := condition(TypeValidPolicySpec, metav1.ConditionFalse, reasonInvalid,
		"the operator namespace "+text.Quote(e.wanted.namespace)+" does not exist")
	if !e.enforced {
		f.Message += notCreated
		return f, nil
	}
	if missing := e.Grants.Missing(grant.Namespaces); missing != "" {
		f.Message += ": " + missing
		return f, nil
	}
	return f, []Action{{
		Object: map[string]any{"apiVersion": "v1", "kind": "Namespace",
			"metadata": map[string]any{"name": e.wanted.namespace}},
		Done: validated(), Failed: f.because("created"),
	}}
}

// notCreated says why something missing is not created.
const notCreated = " and will not be created, because the policy is not enforced"

// nothing returns the related objects of a kind without matching objects.
func (e *evaluation) nothing(kind, reason string) []policyv1beta2.RelatedObject {
	return []policyv1beta2.RelatedObject{e.related(kind, olm.ObjectMeta{Name: noName}, policyv1beta2.Inapplicable,
		reason)}
}

// created describes an object that the policy has just created.
func (e *evaluation) created(kind string, o olm.ObjectMeta) policyv1beta2.RelatedObject {
	r := e.related(kind, o, policyv1beta2.Compliant, relatedCreated)
	r.Properties = &policyv1beta2.ObjectProperties{CreatedByPolicy: new(true)}
	return r
}

// because returns the condition for an action that was refused.
func (f Condition) because(done string) func(reason string) Condition {
	return func(reason string) Condition {
		failed := f
		failed.Message += "; it cannot be " + done + ": " + text.Truncate(reason, foreignText)
		return failed
	}
}

// optionalFields are the fields of a Subscription that are removed with those of the policy. OLM requires the others.
var optionalFields = []string{"channel", "config", "startingCSV"}

// completeFields adds to what the policy wants of a Subscription that it creates or has created: the version to start
// with, unless the policy names one, and the removal of what the policy does not set any more.
func (e *evaluation) completeFields() {
	var written, installed string
	if sub := e.subscription; sub != nil {
		if sub.Metadata.Annotations.PolicyFields == nil {
			return
		}
		written, installed = *sub.Metadata.Annotations.PolicyFields, sub.Status.InstalledCSV
	}
	if !e.enforced || e.Policy.Spec.ComplianceType != policyv1beta2.MustHave {
		return
	}
	want, before := e.wanted.subscription, strings.Split(written, ",")
	if want["channel"] == nil && slices.Contains(before, "channel") && e.manifest != nil {
		e.channel = cmp.Or(e.manifest.DefaultChannel, e.channel)
	}
	if want["startingCSV"] == nil {
		put(want, "startingCSV", e.offered(installed).StartingCSV())
	}
	var fields []string
	for _, field := range optionalFields {
		switch {
		case want[field] != nil:
			fields = append(fields, field)
		case !slices.Contains(before, field):
		case field == "channel":
			want[field] = e.channel // as for a Subscription that is created
		default:
			want[field] = nil
		}
	}
	e.wanted.fields = new(strings.Join(fields, ","))
}

// offered is what the catalog offers to the Subscription.
func (e *evaluation) offered(installed string) *rules.Offered {
	return &rules.Offered{Namespace: e.Namespace, Policy: e.Rules, Package: e.manifest, Channel: e.channel,
		InstalledCSV: installed}
}

// startOfOthers returns, as a sentence, the spec.startingCSV that a Subscription which the policy did not create needs;
// "" if it needs none.
func (e *evaluation) startOfOthers() string {
	sub := e.subscription
	if sub.Metadata.Annotations.PolicyFields != nil && e.enforced || e.Policy.Spec.Subscription.StartingCSV != "" {
		return ""
	}
	start := e.offered(sub.Status.InstalledCSV).StartingCSV()
	if start == "" || start == sub.Spec.StartingCSV || start == sub.Status.CurrentCSV {
		return ""
	}
	return "OLM plans " + text.Name(start) + ", which is allowed, if spec.startingCSV of the Subscription " +
		named(&sub.Metadata) +
		" names it: the policy did not create that Subscription"
}
