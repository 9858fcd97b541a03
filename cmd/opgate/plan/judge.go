package plan

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	"github.com/operator-framework/operator-registry/alpha/declcfg"
	"github.com/operator-framework/operator-registry/alpha/property"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/cmd/opgate/cluster"
	"github.com/opgate/opgate/cmd/opgate/diff"
	"github.com/opgate/opgate/cmd/opgate/inspect"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/rules/change"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/snapshot"
	"github.com/opgate/opgate/snapshot/contents"
)

// step is a version on a path, with what the gate decides on its InstallPlan, and what the catalog has of it.
type step struct {
	CSV     string `json:"csv"`
	Version string `json:"version"`
	Channel string `json:"channel"`
	From    string `json:"from"`
	// Edge is replaces, skips, skipRange or install.
	Edge      string `json:"edge"`
	SkipRange string `json:"skipRange,omitempty"`
	// Plan is an InstallPlan that waits for it, as namespace/name.
	Plan     string `json:"plan,omitempty"`
	Decision string `json:"decision"`
	// Operator has what the decision comes from.
	Operator   inspect.Operator `json:"operator"`
	Reasons    []inspect.Reason `json:"reasons"`
	Warnings   []string         `json:"warnings"`
	Deprecated []deprecation    `json:"deprecated"`
	// Image is the bundle image; "" if there is none.
	Image string `json:"image"`
	// MinKubeVersion and MaxOpenShiftVersion are "" if the catalog has none.
	MinKubeVersion      string `json:"minKubeVersion"`
	MaxOpenShiftVersion string `json:"maxOpenShiftVersion"`
	// Changes are those beyond what is installed before; NotCompared is why they are not known.
	Changes     []change.Difference `json:"changes"`
	Digest      string              `json:"digest"`
	NotCompared string              `json:"notCompared,omitempty"`
}

// deprecation is a message of a catalog on a version, its channel or its package.
type deprecation struct {
	Of      string `json:"of"`
	Message string `json:"message"`
}

// judge judges the steps of a path, each as if those before it had been taken: in the state of a cluster with what OLM
// would have written.
type judge struct {
	*catalogPackage
	state     *cluster.State
	builder   snapshot.Builder
	namespace string
	catalog   olm.Catalog
	// before is what is installed; "" if nothing is.
	before string
	// subscription is the Subscription to the package.
	subscription map[string]any
	now          time.Time
}

// begin prepares judging.
func (j *judge) begin() {
	j.builder = j.state.Builder()
	others, compare := j.builder.Packages, j.builder.Changes
	j.Package.Catalog = j.catalog
	j.builder.Packages = func(pkg, csv string, source olm.Catalog) *catalog.Package {
		if pkg == j.Name && source == j.catalog {
			return j.Package
		}
		return others(pkg, csv, source)
	}
	j.builder.Changes = func(plan *olm.InstallPlan, csvs []state.Replacement) *state.PlanChanges {
		if !isMade(plan) {
			return compare(plan, csvs)
		}
		return j.changes(plan, csvs)
	}
}

// changes compares what a plan of a step brings with the version before it, as the catalog has both.
func (j *judge) changes(plan *olm.InstallPlan, csvs []state.Replacement) *state.PlanChanges {
	all := &state.PlanChanges{Plan: plan.ContentsDigest(), Replacements: csvs, ByCSV: map[string]*change.Set{},
		Bundles: map[string]*olm.Bundle{}}
	for _, c := range csvs {
		is, err := j.contents(c.CSV)
		was := change.ReadContents("", "", nil)
		if err == nil && c.From != "" {
			was, err = j.contents(c.From)
		}
		set, bundle := &change.Set{}, &olm.Bundle{}
		if err != nil {
			set.Fault, bundle.Fault = err.Error(), err.Error()
		} else {
			set, bundle = change.Compare(was, is), contents.BundleOf(is)
		}
		set.CSV, set.Package, set.Version, set.From = c.CSV, c.Package, c.Version, c.From
		all.ByCSV[c.CSV], all.Bundles[c.CSV] = set, bundle
	}
	return all
}

// errWithoutContents is why most steps are not compared: newer catalogs have images alone.
var errWithoutContents = errors.New("the catalog does not have its contents (olm.bundle.object)")

// contents returns what the catalog has of the contents of a version.
func (o *catalogPackage) contents(csv string) (*change.Contents, error) {
	b := o.bundle(csv)
	if b == nil || !slices.ContainsFunc(b.Properties,
		func(p property.Property) bool { return p.Type == property.TypeBundleObject }) {
		return nil, errWithoutContents
	}
	return diff.ContentsOf(&declcfg.Bundle{Name: csv, Image: b.Image, Properties: b.Properties})
}

// madeUID begins the UIDs of plans that are made here.
const madeUID = "opgate-plan-"

func isMade(plan *olm.InstallPlan) bool { return strings.HasPrefix(plan.Metadata.UID, madeUID) }

// judge judges a step.
func (j *judge) judge(ctx context.Context, s *step) error {
	b := j.bundle(s.CSV)
	s.Image, s.Deprecated, s.Changes = b.Image, []deprecation{}, []change.Difference{}
	s.MinKubeVersion, s.MaxOpenShiftVersion = j.platforms(b)
	d, _ := j.Deprecations(s.CSV, []string{s.Channel})
	for _, of := range []deprecation{{"version", d.Version}, {"channel", d.Channel}, {"package", d.Package}} {
		if of.Message != "" {
			s.Deprecated = append(s.Deprecated, of)
		}
	}
	at, plan, err := j.planned(s)
	if err != nil {
		return err
	}
	replacements := carrier.Replacements(at.Namespace(j.namespace), plan)
	var changes *state.PlanChanges
	if isMade(plan) {
		changes = j.changes(plan, replacements)
	} else {
		s.Plan, changes = plan.Metadata.Key(), contents.Changes(ctx, j.state.Contents(), plan, replacements)
	}
	answer := (&inspect.Cluster{Snapshot: at, Now: j.now}).JudgePlan(plan)
	s.Decision, s.Reasons = answer.Decision.String(), inspect.Reasons(answer.Reasons)
	s.Warnings = inspect.WarningTexts(&answer.Verdict)
	for _, o := range answer.Operators {
		if o.CSV == s.CSV {
			s.Operator = o
		}
	}
	switch set := changes.ByCSV[s.CSV]; {
	case set == nil:
		s.NotCompared = "its package is not known"
	case set.Fault != "":
		s.NotCompared = set.Fault
	default:
		s.Digest, s.Changes = set.Digest(), append(s.Changes, set.Differences...)
	}
	return nil
}

// planned returns the plan that waits for a version, and the state in which it does: that of the cluster, or one with
// what OLM would write.
func (j *judge) planned(s *step) (*snapshot.Snapshot, *olm.InstallPlan, error) {
	b := j.builder // a copy: the next step is made of the same state
	at := b.Put(time.Time{})
	if plan := j.waiting(at, s.CSV); plan != nil && s.From == j.before {
		return at, plan, nil
	}
	if old := at.Object(snapshot.ClusterServiceVersions, snapshot.InNamespace(j.namespace),
		types.NamespacedName{Namespace: j.namespace, Name: j.before}); old != nil && s.From != j.before {
		b.Remove(time.Time{}, old)
	}
	plan := j.plan(s)
	j.subscription["status"] = map[string]any{"installedCSV": s.From, "currentCSV": s.CSV, "state": olm.StateUpgradePending,
		"installPlanRef": map[string]any{"name": plan.Name, "namespace": j.namespace}}
	made := map[*snapshot.Kind]any{snapshot.InstallPlans: plan, snapshot.Subscriptions: j.subscription}
	if s.From != "" && !at.Namespace(j.namespace).Installs(s.From) {
		made[snapshot.ClusterServiceVersions] = j.csv(s.From)
	}
	var decode snapshot.Reader
	for kind, object := range made {
		raw, err := json.Marshal(object)
		if err != nil {
			return nil, nil, err
		}
		at = b.Put(time.Time{}, decode.Read(kind, raw))
	}
	return at, j.waiting(at, s.CSV), nil
}

// waiting returns the plan that waits for a version; nil if none does.
func (j *judge) waiting(at *snapshot.Snapshot, csv string) *olm.InstallPlan {
	ns := at.Namespace(j.namespace)
	for _, plan := range ns.Plans() {
		if plan.Brings(csv) && ns.Waits(plan) {
			return plan
		}
	}
	return nil
}

// csv returns the ClusterServiceVersion of a version, as far as others are judged by it.
func (j *judge) csv(name string) map[string]any {
	made := j.metadata(name)
	metav1.SetMetaDataAnnotation(&made, metakey.Properties, propertiesOf(j.bundle(name)))
	return map[string]any{"apiVersion": olm.ClusterServiceVersionGVK.GroupVersion().String(),
		"kind": olm.KindClusterServiceVersion, "metadata": made, "spec": map[string]any{}}
}

// plan returns the InstallPlan that OLM makes for a version, before it has unpacked the bundle.
func (j *judge) plan(s *step) *v1alpha1.InstallPlan {
	b := j.bundle(s.CSV)
	return &v1alpha1.InstallPlan{ObjectMeta: j.metadata("install-" + s.CSV),
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: olm.InstallPlanGVK.Kind},
		Spec:     v1alpha1.InstallPlanSpec{ClusterServiceVersionNames: []string{s.CSV}, Approval: v1alpha1.ApprovalManual},
		Status: v1alpha1.InstallPlanStatus{Phase: v1alpha1.InstallPlanPhaseRequiresApproval, CatalogSources: []string{},
			BundleLookups: []v1alpha1.BundleLookup{{Path: b.Image, Identifier: s.CSV, Replaces: s.From,
				CatalogSourceRef: &corev1.ObjectReference{Namespace: j.catalog.Namespace, Name: j.catalog.Name},
				Properties:       propertiesOf(b)}}},
	}
}

func (j *judge) metadata(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: j.namespace, Name: name, UID: types.UID(madeUID + name),
		CreationTimestamp: metav1.NewTime(j.now)}
}
