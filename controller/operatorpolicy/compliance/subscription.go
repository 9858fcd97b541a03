package compliance

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
)

// managedBy is the value of the annotation for this policy.
func (in *Input) managedBy() string { return in.Policy.Namespace + "." + in.Policy.Name }

// subscribed returns the Subscription of a package, and the others to the same package. One with the name
// of the package comes first; a single one of any name is accepted, including those that OLM generates.
func (in *Input) subscribed(pkg string) (subscription *olm.Subscription, duplicates []*olm.Subscription) {
	duplicates = filter(in.Namespace.Subscriptions(), func(s *olm.Subscription) bool { return s.Spec.Package == pkg })
	chosen := slices.IndexFunc(duplicates, func(s *olm.Subscription) bool { return s.Metadata.Name == pkg })
	if chosen < 0 && len(duplicates) == 1 {
		chosen = 0
	}
	if chosen < 0 {
		return nil, duplicates
	}
	s := duplicates[chosen]
	return s, slices.Delete(duplicates, chosen, chosen+1)
}

// current returns the version that the Subscription has installed or moves to, "" for none.
func (e *evaluation) current() string {
	if e.subscription == nil {
		return ""
	}
	return e.subscription.Status.CurrentCSV
}

// compareSubscription compares the Subscription with the policy.
func (e *evaluation) compareSubscription(groupUsable bool) (Condition, []Action) {
	switch {
	case len(e.duplicates) > 0:
		return e.rivalry(), nil
	case e.subscription == nil:
		return e.missingSubscription(groupUsable)
	}
	sub, live := e.subscription, e.stored()
	differing := differences(live, e.wanted.subscription, "spec")
	if e.wanted.fields != nil {
		differing = append(differing, differences(live, map[string]any{metakey.PolicyFields: *e.wanted.fields},
			"metadata", "annotations")...)
	}
	if e.enforced {
		differing = append(differing, differences(live, map[string]any{metakey.Managed: e.managedBy()}, "metadata",
			"annotations")...)
		differing = append(differing, differences(live, map[string]any{metakey.Managed: ""}, "metadata", "labels")...)
	}
	if len(differing) > 0 {
		return e.differentSubscription(live, differing)
	}
	if f := e.unresolved(); f != nil {
		return *f, nil
	}
	return condition(TypeSubscription, metav1.ConditionTrue, "SubscriptionMatches",
		"the Subscription matches what is required by the policy",
		e.related(kindSubscription, sub.Metadata, policyv1beta2.Compliant, relatedFound)), nil
}

// rivalry is for several Subscriptions to one package: OLM resolves none in such a namespace, and only the
// author can decide which one is meant.
func (e *evaluation) rivalry() Condition {
	all := slices.Clone(e.duplicates)
	if e.subscription != nil {
		all = append(all, e.subscription)
	}
	slices.SortFunc(all, func(a, b *olm.Subscription) int { return strings.Compare(a.Metadata.Name, b.Metadata.Name) })
	var names []string
	var related []policyv1beta2.RelatedObject
	for _, s := range all {
		names = append(names, s.Metadata.Name)
		related = append(related, e.related(kindSubscription, s.Metadata, policyv1beta2.NonCompliant, relatedMismatch))
	}
	return condition(TypeSubscription, metav1.ConditionFalse, "SubscriptionMismatch", fmt.Sprintf(
		"there is more than one Subscription to %s in namespace %s, so that OLM resolves none: %s; remove all but one",
		e.wanted.name, e.wanted.namespace, text.Names(names, maxListed)), related...)
}

func (e *evaluation) differentSubscription(live map[string]any, differences []difference) (Condition, []Action) {
	sub := e.subscription
	f := condition(TypeSubscription, metav1.ConditionFalse, "SubscriptionMismatch",
		"the Subscription "+named(&sub.Metadata)+" does not match the policy: "+differing(differences),
		e.related(kindSubscription, sub.Metadata, policyv1beta2.NonCompliant, relatedMismatch))
	if !e.enforced {
		return f, nil
	}
	changed := e.remembering(sub, live, corrected(live, differences))
	return f, []Action{{Live: live, Object: changed, Done: e.updated(), Failed: f.because("enforced")}}
}

// stored returns the policy's Subscription, as far as it is compared and changed.
func (e *evaluation) stored() map[string]any { return subscriptionContent(e.subscription) }

// remembering returns a Subscription with a changed installPlanApproval and what it was before, unless the policy has
// created it. The value is restored when no policy needs another one.
func (e *evaluation) remembering(s *olm.Subscription, live, changed map[string]any) map[string]any {
	have, _ := object(live, "spec")["installPlanApproval"].(string)
	want := object(changed, "spec")["installPlanApproval"]
	annotations := maps.Clone(object(changed, "metadata", "annotations"))
	noted, _ := annotations[metakey.RequestedApproval].(string)
	requested := rules.RequestedApproval(have, noted)
	switch {
	case want == nil || want == have || e.createdByPolicy(kindSubscription, &s.Metadata),
		requested == want && noted == "":
		return changed
	case requested == want:
		delete(annotations, metakey.RequestedApproval)
		return with(changed, annotations, "metadata", "annotations")
	}
	return with(changed, requested, "metadata", "annotations", metakey.RequestedApproval)
}

func (e *evaluation) updated() Condition {
	return condition(TypeSubscription, metav1.ConditionTrue, "SubscriptionUpdated",
		"the Subscription "+named(&e.subscription.Metadata)+" was updated to match the policy",
		e.related(kindSubscription, e.subscription.Metadata, policyv1beta2.Compliant, relatedUpdated))
}

func (e *evaluation) missingSubscription(groupUsable bool) (Condition, []Action) {
	o := olm.ObjectMeta{Namespace: e.wanted.namespace, Name: e.wanted.name}
	if i := slices.IndexFunc(e.Namespace.Subscriptions(),
		func(s *olm.Subscription) bool { return s.Metadata.Name == o.Name }); i >= 0 {
		// The name is taken by another operator. Changing that Subscription would orphan what it installed.
		other := e.Namespace.Subscriptions()[i]
		return condition(TypeSubscription, metav1.ConditionFalse, "SubscriptionMismatch", fmt.Sprintf(
			"the Subscription %s does not match the policy: spec.name is %s, want %s; it belongs to another package and is not changed",
			named(&other.Metadata), text.Quote(other.Spec.Package), text.Quote(o.Name)), e.related(kindSubscription,
			other.Metadata, policyv1beta2.NonCompliant, relatedMismatch)), nil
	}
	f := condition(TypeSubscription, metav1.ConditionFalse, "SubscriptionMissing",
		"the required Subscription "+named(&o)+" was not found",
		e.related(kindSubscription, o, policyv1beta2.NonCompliant, relatedMissing))
	spec, open := e.completed()
	switch {
	case open != "":
		f.Message += "; " + open
		return f, nil
	case !e.enforced:
		f.Message += notCreated
		return f, nil
	case !groupUsable:
		f.Message += " and will not be created until the OperatorGroup is correct"
		return f, nil
	}
	if since := e.removedSince(); !since.IsZero() {
		f.Reason, f.Since = reasonRemoved, metav1.NewTime(since)
		f.Message += "; it was deleted, and is created again unless OLM v1 takes over the operator within " +
			migrationGrace.String()
		return f, nil
	}
	return f, []Action{{
		// The marks are set on creation; added later they would count as a change of the Subscription.
		Object: map[string]any{"apiVersion": olm.V1alpha1.String(), "kind": kindSubscription,
			"metadata": map[string]any{"name": o.Name, "namespace": o.Namespace,
				"labels": map[string]any{metakey.Managed: ""},
				"annotations": e.mark(map[string]any{metakey.Managed: e.managedBy(),
					metakey.PolicyFields: *e.wanted.fields}, kindSubscription, &o, nil)},
			"spec": spec},
		Done: condition(TypeSubscription, metav1.ConditionTrue, "SubscriptionCreated",
			"the required Subscription "+named(&o)+" was created", e.created(kindSubscription, o)),
		Failed: f.because("created"),
	}}
}

// completed returns the spec of the Subscription with the defaults of the package for fields that the policy omits;
// open says what cannot be determined. The catalog is read only for missing fields.
func (e *evaluation) completed() (spec map[string]any, open string) {
	spec = maps.Clone(e.wanted.subscription)
	var missing []string
	for _, field := range []struct{ name, value string }{
		{"channel", e.channel}, {"source", e.catalog.Name}, {"sourceNamespace", e.catalog.Namespace},
	} {
		if spec[field.name] == nil && field.value == "" {
			missing = append(missing, "spec.subscription."+field.name)
		}
		put(spec, field.name, field.value)
	}
	switch {
	case len(missing) == 0:
		return spec, ""
	case e.manifest == nil:
		return nil, fmt.Sprintf(
			"the defaults of %s cannot be determined, because the package %s was not (yet) found in %s",
			text.Names(missing, maxListed), e.wanted.name, e.catalogAsked())
	}
	return nil, fmt.Sprintf(
		"the defaults of %s cannot be determined, because the PackageManifest of %s does not list them",
		text.Names(missing, maxListed), e.wanted.name)
}

// catalogAsked names the catalog as far as the policy does.
func (e *evaluation) catalogAsked() string {
	switch c := e.catalog; {
	case c.Name == "" && c.Namespace == "":
		return "a catalog"
	case c.Namespace == "":
		return "a catalog named " + text.Name(c.Name)
	case c.Name == "":
		return "a catalog in namespace " + c.Namespace
	default:
		return "catalog " + text.Name(c.Namespace+"/"+c.Name)
	}
}

// Origin is the namespace that a copy of a ClusterServiceVersion names as its source. The label with its name is no
// evidence: a user who may write ClusterServiceVersions in one namespace can set it, or make OLM set it on
// copies in every other namespace.
type Origin struct {
	// CSV is the original: it has the copy's name and is not a copy itself.
	CSV       *olm.CSV
	Namespace *state.Namespace
}

// serves reports whether OLM copies what is installed there to a namespace: OLM requires exactly one OperatorGroup
// and writes its target namespaces, "" for all, to its status.
func (o *Origin) serves(namespace string) bool {
	if o == nil || o.CSV.Metadata.Labels.CopiedFrom != "" || o.CSV.Metadata.DeletionTimestamp != "" ||
		len(o.Namespace.Groups()) != 1 {
		return false
	}
	targets := o.Namespace.Groups()[0].Status.Namespaces
	return slices.Contains(targets, "") || slices.Contains(targets, namespace)
}

// provides reports whether the original is of a package: by its own properties, else by the Subscriptions that refer to
// it.
func (o *Origin) provides(pkg string) bool {
	if o.CSV.Bundle.Package != "" {
		return o.CSV.Bundle.Package == pkg
	}
	followers := o.followers()
	return len(followers) > 0 && !slices.ContainsFunc(followers,
		func(s *olm.Subscription) bool { return s.Spec.Package != pkg })
}

// comesFrom reports whether the original was installed from a catalog that a policy allows. A policy that names none
// allows all. Otherwise a Subscription must refer to the original, all that do must be to that package and catalog,
// and the plan that installed it, if it still exists, must not contradict: OLM links a Subscription to any object with
// the expected name, and the Subscription's catalog can be changed afterwards.
func (o *Origin) comesFrom(p *operatorpolicy.Policy) bool {
	if p.Catalog == (olm.Catalog{}) {
		return true
	}
	if o.Namespace.Drifted(o.CSV.Metadata.Name) {
		return false
	}
	followers := o.followers()
	if len(followers) == 0 || slices.ContainsFunc(followers,
		func(s *olm.Subscription) bool { return s.Spec.Package != p.Package || !p.AllowsCatalog(s.Catalog()) }) {
		return false
	}
	plan := newestFor(o.Namespace.Plans(), o.CSV.Metadata.Name) // nil if it was deleted: OLM retains few of them
	return plan == nil || plan.Spec.Approved && !preceded(plan, o.CSV) &&
		p.AllowsCatalog(cmp.Or(planCatalog(plan, o.CSV.Metadata.Name), followers[0].Catalog()))
}

// followers returns the Subscriptions that have installed, or move to, the original.
func (o *Origin) followers() []*olm.Subscription {
	return filter(o.Namespace.Subscriptions(), func(s *olm.Subscription) bool { return s.Follows(o.CSV.Metadata.Name) })
}

// preceded reports whether a ClusterServiceVersion is older than the plan that should have installed it. The status of
// the plan's step does not show it: OLM repeats steps, and then finds existing objects that it has created itself.
func preceded(plan *olm.InstallPlan, csv *olm.CSV) bool {
	return csv.Metadata.CreationTimestamp < plan.Metadata.CreationTimestamp
}

// wanted is the desired state, as far as the policy itself sets it.
type wanted struct {
	// name is the package, and the name of a Subscription that is created.
	name, namespace string
	// subscription are the fields of the Subscription's spec that the policy sets. Fields that it omits,
	// or sets to an empty value, are neither compared nor changed.
	subscription map[string]any
	// fields is the metakey.PolicyFields of a Subscription that the policy creates; nil for that of others.
	fields *string
	// group is nil if the policy names no OperatorGroup.
	group *operatorpolicy.Group
}

// wanted parses the policy. It returns all problems at once.
func (in *Input) wanted() (*wanted, []string) {
	spec := &in.Policy.Spec
	sub := &spec.Subscription
	w := &wanted{name: sub.Name, namespace: sub.Namespace, subscription: map[string]any{}}
	problems := slices.Clone(in.Problems)
	for _, err := range in.Rules.Invalid {
		problems = append(problems, err.Error())
	}
	if sub.Namespace == "" && len(in.Problems) == 0 {
		problems = append(problems,
			"spec.subscription.namespace: Required value: name the namespace of the operator, since nothing else determines it")
	}

	put(w.subscription, "name", sub.Name)
	put(w.subscription, "channel", sub.Channel)
	put(w.subscription, "source", sub.Source)
	put(w.subscription, "sourceNamespace", sub.SourceNamespace)
	put(w.subscription, "startingCSV", sub.StartingCSV)
	if config := operatorpolicy.Read[map[string]any](sub.Config); len(config) > 0 {
		w.subscription["config"] = config
	}
	if spec.IsEnforced() {
		w.subscription["installPlanApproval"], _ = in.Namespace.Approval(in.Rules)
	}
	w.group = in.Rules.Group
	if spec.IsEnforced() && len(in.Overlaps) > 0 {
		problems = append(problems,
			fmt.Sprintf("the policy does nothing, because several enforced policies manage the Subscription to %s in namespace %s: %s",
				text.Name(sub.Name), text.Name(sub.Namespace), text.Names(in.Overlaps, maxListed)))
	}
	return w, problems
}

// put sets a field unless the value is empty.
func put(fields map[string]any, field, value string) {
	if value != "" {
		fields[field] = value
	}
}

func anySlice(values []string) []any {
	list := make([]any, len(values))
	for i, v := range values {
		list[i] = v
	}
	return list
}

// catalogProblems reports that the catalog which a policy names in part does not exist or lacks the package (only
// if the Subscription must be created: an existing one names its catalog).
func (e *evaluation) catalogProblems() []string {
	asked := olm.Catalog{Namespace: e.Policy.Spec.Subscription.SourceNamespace, Name: e.Policy.Spec.Subscription.Source}
	inPart := (asked.Name == "") != (asked.Namespace == "")
	if e.Policy.Spec.ComplianceType != policyv1beta2.MustHave || e.subscription != nil || len(e.duplicates) > 0 ||
		!inPart || e.manifest != nil {
		return nil
	}
	other := e.Package(olm.Catalog{})
	if other == nil {
		return nil // the package may still appear in any catalog
	}
	field, value := "source", asked.Name
	if asked.Name == "" {
		field, value = "sourceNamespace", asked.Namespace
	}
	return []string{fmt.Sprintf(
		"spec.subscription.%s: Invalid value: %s: the catalog in the policy does not match the one in the PackageManifest of %s, which is %s/%s",
		field, text.Quote(value), e.wanted.name, other.Catalog.Namespace, other.Catalog.Name)}
}
