package compliance

import (
	"fmt"
	"slices"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/operatorpolicy"
)

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

	var unread []string
	put(w.subscription, "name", sub.Name)
	put(w.subscription, "channel", sub.Channel)
	put(w.subscription, "source", sub.Source)
	put(w.subscription, "sourceNamespace", sub.SourceNamespace)
	put(w.subscription, "startingCSV", sub.StartingCSV)
	if config := operatorpolicy.Read[map[string]any]("spec.subscription.config", sub.Config, &unread); len(config) > 0 {
		w.subscription["config"] = config
	}
	if spec.IsEnforced() {
		w.subscription["installPlanApproval"], _ = in.Namespace.Approval(in.Rules)
	}
	group, faults := operatorpolicy.GroupOf(spec)
	w.group = group
	if len(problems) == 0 { // else validation has reported them
		problems = append(unread, faults...)
	}
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
	other := e.Input.manifest(olm.Catalog{})
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
