package compliance

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/grant"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
	"github.com/opgate/opgate/stream"
)

// difference is a field of a live object that does not have the value that the policy sets.
type difference struct {
	path       []string
	live, want any
}

func (d *difference) String() string {
	switch d.path[len(d.path)-1] {
	case metakey.Managed:
		return "it is not marked as managed by this policy" // the name of another policy is not disclosed
	case metakey.CreatedBy:
		return "its annotation " + metakey.CreatedBy + " does not have the fields that the policy sets"
	}
	return fmt.Sprintf("%s is %s, want %s", strings.Join(d.path, "."), valueText(d.live), valueText(d.want))
}

// differing joins the differences for a message.
func differing(differences []difference) string {
	parts := make([]string, len(differences))
	for i := range differences {
		parts[i] = differences[i].String()
	}
	return sentences(slices.Compact(parts))
}

// differences compares the fields below a path of a live object that the policy sets, and ignores
// all others. A field is compared as a whole: items that the policy no longer lists in it are removed.
func differences(live, want map[string]any, path ...string) []difference {
	fields := object(live, path...)
	var differing []difference
	for _, field := range slices.Sorted(maps.Keys(want)) {
		if !operatorpolicy.Same(field, fields[field], want[field]) {
			differing = append(differing, difference{path: append(slices.Clone(path), field), live: fields[field],
				want: want[field]})
		}
	}
	return differing
}

// object returns the part of an object's content at a path, nil if it does not exist.
func object(content map[string]any, path ...string) map[string]any {
	for _, key := range path {
		content, _ = content[key].(map[string]any)
	}
	return content
}

// with returns a copy of a live object with one field set.
func with(live map[string]any, value any, field string, below ...string) map[string]any {
	changed := maps.Clone(live)
	if changed == nil {
		changed = map[string]any{}
	}
	if len(below) > 0 {
		value = with(object(live, field), value, below[0], below[1:]...)
	}
	changed[field] = value
	return changed
}

// subscriptionContent returns a Subscription in the form of unstructured objects, as far as it is compared and changed.
// A config that cannot be read is a placeholder, of which the whole is replaced.
func subscriptionContent(s *olm.Subscription) map[string]any {
	annotations, labels, spec := map[string]any{}, map[string]any{}, map[string]any{}
	put(annotations, metakey.Managed, s.Metadata.Annotations.ManagedBy)
	put(annotations, metakey.RequestedApproval, s.Metadata.Annotations.RequestedApproval)
	if fields := s.Metadata.Annotations.PolicyFields; fields != nil {
		annotations[metakey.PolicyFields] = *fields
	}
	if mark := s.Metadata.Labels.Managed; mark != nil {
		labels[metakey.Managed] = *mark
	}
	put(spec, "name", s.Spec.Package)
	put(spec, "channel", s.Spec.Channel)
	put(spec, "source", s.Spec.Source)
	put(spec, "sourceNamespace", s.Spec.SourceNamespace)
	put(spec, "startingCSV", s.Spec.StartingCSV)
	put(spec, "installPlanApproval", s.Spec.InstallPlanApproval)
	switch config := s.Spec.Config.Read(); {
	case config.Fault != "":
		spec["config"] = stream.Withhold(config.Fault)
	case config.JSON != "":
		var fields map[string]any
		_ = json.Unmarshal([]byte(config.JSON), &fields) // it was encoded when it was read
		spec["config"] = fields
	}
	content := s.Metadata.Reference(olm.SubscriptionGVK)
	metadata := object(content, "metadata")
	metadata["annotations"], metadata["labels"], content["spec"] = annotations, labels, spec
	return content
}

// groupContent returns an OperatorGroup in the form of unstructured objects, as far as it is compared and changed.
func groupContent(g *olm.OperatorGroup) map[string]any {
	spec := g.Spec.Fields()
	if spec == nil && g.Spec.Digest != [sha256.Size]byte{} {
		large := stream.Withhold("the spec of the OperatorGroup")
		spec = map[string]any{operatorpolicy.GroupTargets: large, operatorpolicy.GroupSelector: large}
		put(spec, operatorpolicy.GroupAccount, g.Spec.ServiceAccount)
		put(spec, "upgradeStrategy", g.Spec.UpgradeStrategy)
	}
	content := g.Metadata.Reference(olm.OperatorGroupGVK)
	if mark := g.Metadata.Annotations.CreatedBy; mark != "" {
		object(content, "metadata")["annotations"] = map[string]any{metakey.CreatedBy: mark}
	}
	content["spec"], content["status"] = spec, map[string]any{"namespaces": anySlice(g.Status.Namespaces)}
	return content
}

// corrected returns a copy of a live object with every difference corrected.
func corrected(live map[string]any, differences []difference) map[string]any {
	for i := range differences {
		live = with(live, differences[i].want, differences[i].path[0], differences[i].path[1:]...)
	}
	return live
}

// Input is everything that evaluating a policy needs: the policy and the observed state of its namespace. It is
// not modified.
type Input struct {
	// Policy is the policy with resolved template text and its namespace set, as far as these are known.
	Policy *policyv1beta2.OperatorPolicy
	// Rules is the same policy, prepared for judging.
	Rules *operatorpolicy.Policy
	// Problems are why the policy could not be completed, such as template text that does not resolve. A
	// policy with problems is not valid, and nothing is done for it.
	Problems []string
	// Overlaps are the enforced policies that govern the same package in the same namespace, including this one,
	// as <name>.<namespace> and sorted; empty if there is only this one.
	Overlaps []string
	// Cluster names the cluster in related objects. It may be empty.
	Cluster string

	// Grants are the rights that the installation withholds.
	Grants grant.Set
	// Key is that of the marks of what policies create; empty while there is none.
	Key []byte
	// Unverified is a sentence on the rights of the policy's author; empty if they were verified.
	Unverified string
	// Namespace is that of the operator, as admission judges by it.
	Namespace *state.Namespace
	// Originals are ClusterServiceVersions in other namespaces that serve this one without a copy. Origins are the
	// contents of their namespaces, and of those of copies here, for the policy's package; none where the original does
	// not exist.
	Originals []*olm.CSV
	Origins   map[*olm.CSV]*Origin
	// Before are the Subscriptions of the related objects in the status that exist.
	Before []*olm.Subscription
	// CRDs are those that OLM labelled as the operator's, sorted by name.
	CRDs []CRD
	// OLMv1 reports whether the cluster serves ClusterExtensions, and Opgate may read them. Migrated are those objects
	// of OLM v1 that show that it manages the policy's operator, sorted by kind and name.
	OLMv1    bool
	Migrated []*olm.Migrated
	// Deployments are those of the operator's namespace, by name.
	Deployments map[string]Deployment
	// CatalogSource returns a CatalogSource, or nil if it does not exist.
	CatalogSource func(olm.Catalog) *olm.CatalogSource
	// Catalogs are all CatalogSources, sorted by namespace and name.
	Catalogs []olm.Catalog
	// Package returns the policy's package in a catalog; a catalog with an empty name or namespace stands for
	// any that has the package. It returns nil if that is not known (yet): PackageManifests cannot
	// be watched, and their server may be absent.
	Package func(olm.Catalog) *catalog.Package
	// Approvals are the results for the plans that wait and were not approved, by plan name.
	Approvals map[string]Approval
	// Escaped has a sentence for each ClusterServiceVersion that was installed during an outage and that the policy
	// does not allow.
	Escaped []string

	Now time.Time
}

// namespaceExists reports whether the namespace of the operator exists, and stays.
func (in *Input) namespaceExists() bool { return in.Namespace.Exists() && !in.Namespace.Deleting() }

// csvs returns the ClusterServiceVersions of the namespace, sorted by name, and then the originals that serve it.
func (in *Input) csvs() []*olm.CSV { return slices.Concat(in.Namespace.CSVs(), in.Originals) }

// from returns the namespace of the original of a copy, or of an original without one; "" for what is installed here.
func (in *Input) from(c *olm.CSV) string {
	if c.Metadata.Namespace != in.Namespace.Name() {
		return c.Metadata.Namespace
	}
	return c.Metadata.Labels.CopiedFrom
}

// CRD is a CustomResourceDefinition.
type CRD struct {
	olm.ObjectMeta
	// Operators are OLM's labels for the operators that it belongs to.
	Operators []string
}

// Deployment is the relevant part of an apps/v1 Deployment.
type Deployment struct {
	olm.ObjectMeta
	// Available reports whether the Deployment, in its present generation, has all its replicas available.
	Available bool
	// Stalled reports whether the Deployment has exceeded its progress deadline.
	Stalled bool
}

// Approval is the result for a plan that waits and was not approved.
type Approval struct {
	// Problem is why a plan that may be approved is not.
	Problem string
	// Reasons are why it may or should not be approved, in the order of refusals.
	Reasons []verdict.Reason
	// Stale is why the plan cannot be what its Subscriptions ask for, and what ends that, as a sentence; "" if it can.
	Stale string
}

const (
	reasonLeftBehind  = "SubscriptionLeftBehind"
	relatedLeftBehind = "Resource is managed by a policy that no longer names it"
)

// leftBehind returns the Subscriptions that the policy still manages although it does not name their namespace or
// package any more.
func (in *Input) leftBehind() []*olm.Subscription {
	sub := &in.Policy.Spec.Subscription
	return filter(in.Before, func(s *olm.Subscription) bool {
		return s.Metadata.Annotations.ManagedBy == in.managedBy() &&
			(s.Metadata.Namespace != sub.Namespace || s.Spec.Package != sub.Name)
	})
}

// withLeftBehind returns the conditions with what the policy has left behind: the next evaluation knows it from the
// related objects.
func (in *Input) withLeftBehind(conditions []Condition) []Condition {
	conditions = slices.Clone(conditions)
	f := find(conditions, TypeSubscription)
	if f == nil || f.KeepRelated {
		return conditions // related objects are kept, these included
	}
	f.Related = slices.Clone(f.Related)
	for _, s := range in.leftBehind() {
		f.Message += "; the Subscription " + named(&s.Metadata) +
			", which the policy managed before it was changed, is left behind: " +
			"delete it and its ClusterServiceVersion, or remove them with a mustnothave policy"
		f.Related = append(f.Related, in.related(kindSubscription, s.Metadata, policyv1beta2.Inapplicable,
			relatedLeftBehind))
	}
	return conditions
}
