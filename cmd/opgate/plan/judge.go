package plan

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/cmd/opgate/inspect"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/rules/change"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
	"github.com/opgate/opgate/snapshot"
	"github.com/opgate/opgate/snapshot/contents"
)

// step is a hop with what the gate decides on its InstallPlan, and what the catalog has of the version.
type step struct {
	hop
	// Plan is an InstallPlan that waits for it, as namespace/name.
	Plan        string           `json:"plan,omitempty"`
	Decision    string           `json:"decision"`
	Disposition string           `json:"disposition"`
	By          []string         `json:"by"`
	Reasons     []inspect.Reason `json:"reasons"`
	Warnings    []string         `json:"warnings"`
	Deprecated  []deprecation    `json:"deprecated"`
	// Image is the bundle image; "" if there is none.
	Image string `json:"image"`
	// MinKubeVersion and MaxOpenShiftVersion are "" if the catalog has none.
	MinKubeVersion      string `json:"minKubeVersion"`
	MaxOpenShiftVersion string `json:"maxOpenShiftVersion"`
	// Changes are those beyond what is installed before; NotCompared is why they are not known.
	Changes     []change.Difference `json:"changes"`
	Digest      string              `json:"digest"`
	NotCompared string              `json:"notCompared,omitempty"`

	// because names what an allowed one comes from.
	because string
}

// deprecation is a message of a catalog on a version, its channel or its package.
type deprecation struct {
	Of      string `json:"of"`
	Message string `json:"message"`
}

// judge judges the steps of a path, each as if those before it had been taken. It has the state of a cluster, and adds
// to it what OLM would write.
type judge struct {
	*catalogPackage
	builder   snapshot.Builder
	namespace string
	catalog   olm.Catalog
	// subscription is the Subscription to the package.
	subscription map[string]any
	// stored returns objects that are stored, made has those that the steps make.
	stored contents.Source
	made   contents.Files
	now    time.Time

	last   *snapshot.Snapshot
	decode snapshot.Reader
}

// begin prepares judging, and adds what is installed, in place of before, if the state does not have it.
func (j *judge) begin(from installed, before string) error {
	others, compare := j.builder.Packages, j.builder.Changes
	j.Package.Catalog = j.catalog
	j.builder.Packages = func(pkg, csv string, source olm.Catalog) *catalog.Package {
		if pkg == j.Name && source == j.catalog {
			return j.Package
		}
		return others(pkg, csv, source)
	}
	j.builder.Changes = func(plan *olm.InstallPlan, csvs []state.Replacement) *state.PlanChanges {
		if !strings.HasPrefix(plan.Metadata.UID, madeUID) {
			return compare(plan, csvs)
		}
		return j.changes(plan, csvs)
	}
	j.last = j.builder.Put(time.Time{})
	_, stored := j.subscription["status"]
	switch isThere := from.name == "" || j.last.Namespace(j.namespace).Installs(from.name); {
	case isThere && stored && from.name == before:
		return nil
	case isThere:
		return j.subscribe(from.name, from.name, "")
	}
	return j.install(&hop{CSV: from.name, Version: j.bundle(from.name).GetVersion(), From: before})
}

// Get implements contents.Source.
func (j *judge) Get(
	ctx context.Context, resource schema.GroupVersionResource, key types.NamespacedName,
) ([]byte, error) {
	raw, err := j.made.Get(ctx, resource, key)
	if apierrors.IsNotFound(err) {
		return j.stored.Get(ctx, resource, key)
	}
	return raw, err
}

// changes compares what a plan of a step brings. The catalog is in memory, but for what is installed on a cluster.
func (j *judge) changes(plan *olm.InstallPlan, csvs []state.Replacement) *state.PlanChanges {
	return contents.Changes(context.Background(), j, plan, csvs) //nolint:forbidigo // a single request, of a command
}

// madeUID begins the UIDs of plans that are made here.
const madeUID = "opgate-plan-"

// step judges a hop, and then adds what OLM would have written.
func (j *judge) step(h hop) (*step, error) {
	b := j.bundle(h.CSV)
	s := &step{hop: h, Image: b.GetBundlePath(), Deprecated: []deprecation{}, MinKubeVersion: csvOf(b).Spec.MinKubeVersion,
		Changes: []change.Difference{}, By: []string{}, Warnings: []string{}}
	d, _ := j.Deprecations(h.CSV, []string{h.Channel})
	for _, of := range []deprecation{{"version", d.Version}, {"channel", d.Channel}, {"package", d.Package}} {
		if of.Message != "" {
			s.Deprecated = append(s.Deprecated, of)
		}
	}
	if openShift := propertyOf(b, "olm.maxOpenShiftVersion"); openShift != nil {
		s.MaxOpenShiftVersion = fmt.Sprint(openShift)
	}
	named := func(p *olm.InstallPlan) bool { return p.Brings(h.CSV) && j.last.Namespace(j.namespace).Waits(p) }
	at := slices.IndexFunc(j.last.Namespace(j.namespace).Plans(), named)
	if at < 0 {
		if err := j.put(snapshot.InstallPlans, j.plan(&h, v1alpha1.InstallPlanPhaseRequiresApproval)); err != nil {
			return nil, err
		}
		if err := j.subscribe(h.From, h.CSV, planName(h.CSV)); err != nil {
			return nil, err
		}
		named = func(p *olm.InstallPlan) bool { return p.Metadata.Name == planName(h.CSV) }
		at = slices.IndexFunc(j.last.Namespace(j.namespace).Plans(), named)
	}
	plan := j.last.Namespace(j.namespace).Plans()[at]
	isMade := strings.HasPrefix(plan.Metadata.UID, madeUID)
	if !isMade {
		s.Plan = plan.Metadata.Key()
	}
	cluster := &inspect.Cluster{Snapshot: j.last, Now: j.now}
	answer := cluster.JudgePlan(plan)
	s.Decision, s.Reasons = answer.Decision.String(), inspect.Reasons(answer.Reasons)
	for _, w := range inspect.Warnings(&answer.Verdict) {
		s.Warnings = append(s.Warnings, w.Message)
	}
	s.Disposition = verdict.Ungoverned.String()
	for _, o := range answer.Operators {
		if o.CSV == h.CSV {
			s.Disposition, s.By, s.because = o.Disposition, append(s.By, o.By...), o.Because()
		}
	}
	set := j.changes(plan, carrier.Replacements(j.last.Namespace(j.namespace), plan)).ByCSV[h.CSV]
	switch {
	case set == nil:
		s.NotCompared = "its package is not known"
	case set.Fault != "" && isMade && manifestsOf(b) == nil:
		s.NotCompared = withoutContents
	case set.Fault != "":
		s.NotCompared = set.Fault
	default:
		s.Digest, s.Changes = set.Digest(), append(s.Changes, set.Differences...)
	}
	return s, j.install(&h)
}

// withoutContents is why most steps are not compared: newer catalogs have images alone.
const withoutContents = "the catalog does not have its contents (olm.bundle.object)"

// put stores an object.
func (j *judge) put(kind *snapshot.Kind, object any) error {
	raw, err := json.Marshal(object)
	if err != nil {
		return err
	}
	j.made.Add(raw, j.namespace)
	j.last = j.builder.Put(time.Time{}, j.decode.Read(kind, raw))
	return nil
}

// subscribe writes the status of the Subscription.
func (j *judge) subscribe(from, to, plan string) error {
	status := map[string]any{"installedCSV": from, "currentCSV": to, "state": "AtLatestKnown"}
	if plan != "" {
		status["installPlanRef"], status["state"] = map[string]any{"name": plan, "namespace": j.namespace}, "UpgradePending"
	}
	j.subscription["status"] = status
	return j.put(snapshot.Subscriptions, j.subscription)
}

// install replaces what is installed by the version of a hop.
func (j *judge) install(h *hop) error {
	if err := j.put(snapshot.InstallPlans, j.plan(h, v1alpha1.InstallPlanPhaseComplete)); err != nil {
		return err
	}
	if old := j.last.Object(snapshot.ClusterServiceVersions, snapshot.InNamespace(j.namespace),
		types.NamespacedName{Namespace: j.namespace, Name: h.From}); old != nil {
		j.last = j.builder.Remove(time.Time{}, old)
	}
	for _, manifest := range manifestsOf(j.bundle(h.CSV)) {
		j.made.Add(manifest, j.namespace) // of which definitions are compared
	}
	if err := j.put(snapshot.ClusterServiceVersions, j.csv(h)); err != nil {
		return err
	}
	return j.subscribe(h.CSV, h.CSV, "")
}

func planName(csv string) string { return "install-" + csv }

// plan returns the InstallPlan that OLM makes for a version: with its manifests as steps, or with references to the
// ConfigMap that it unpacks a bundle image into.
func (j *judge) plan(h *hop, phase v1alpha1.InstallPlanPhase) *v1alpha1.InstallPlan {
	b := j.bundle(h.CSV)
	manifests := manifestsOf(b)
	plan := &v1alpha1.InstallPlan{ObjectMeta: j.metadata(planName(h.CSV)),
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: olm.InstallPlanGVK.Kind},
		Spec:     v1alpha1.InstallPlanSpec{ClusterServiceVersionNames: []string{h.CSV}, Approval: v1alpha1.ApprovalManual},
		Status:   v1alpha1.InstallPlanStatus{Phase: phase, CatalogSources: []string{}},
	}
	created := v1alpha1.StepStatusUnknown
	if phase == v1alpha1.InstallPlanPhaseComplete {
		created, plan.Spec.Approved = v1alpha1.StepStatusCreated, true
		plan.Status.Conditions = []v1alpha1.InstallPlanCondition{{Type: v1alpha1.InstallPlanInstalled,
			Status: corev1.ConditionTrue, LastTransitionTime: new(metav1.NewTime(j.now))}}
	}
	reference := ""
	if image := b.GetBundlePath(); image != "" || manifests == nil {
		plan.Status.BundleLookups = []v1alpha1.BundleLookup{{Path: image, Identifier: h.CSV, Replaces: h.From,
			CatalogSourceRef: &corev1.ObjectReference{Namespace: j.catalog.Namespace, Name: j.catalog.Name},
			Properties:       propertiesOf(b)}}
		if j.catalog != (olm.Catalog{}) {
			reference = j.unpack(h, manifests)
		}
	}
	for _, manifest := range manifests {
		var head metav1.PartialObjectMetadata
		_ = json.Unmarshal(manifest, &head) // the comparison reports what is wrong with it
		if head.Kind == olm.KindClusterServiceVersion {
			manifest, _ = j.csv(h).MarshalJSON() // it was decoded from JSON
		}
		gvk := head.GroupVersionKind()
		plan.Status.Plan = append(plan.Status.Plan, &v1alpha1.Step{Resolving: h.CSV, Status: created,
			Resource: v1alpha1.StepResource{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind, Name: head.Name,
				CatalogSource: j.catalog.Name, CatalogSourceNamespace: j.catalog.Namespace,
				Manifest: cmp.Or(reference, string(manifest))}})
	}
	return plan
}

// unpack adds the ConfigMap that OLM unpacks a bundle into, and returns what steps have in place of manifests.
func (j *judge) unpack(h *hop, manifests []json.RawMessage) (reference string) {
	made := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, Data: map[string]string{},
		ObjectMeta: metav1.ObjectMeta{Namespace: j.catalog.Namespace, Name: madeUID + h.CSV, UID: madeUID,
			Labels: map[string]string{metakey.OLMManaged: "true"}}}
	for i, manifest := range manifests {
		made.Data[fmt.Sprintf("%d.json", i)] = string(manifest)
	}
	raw, _ := json.Marshal(made) // texts always encode
	j.made.Add(raw, j.catalog.Namespace)
	raw, _ = json.Marshal(olm.Reference{Kind: made.Kind, Name: made.Name, Namespace: made.Namespace,
		CatalogName: j.catalog.Name, CatalogNamespace: made.Namespace, Replaces: h.From,
		Properties: propertiesOf(j.bundle(h.CSV))})
	return string(raw)
}

func (j *judge) metadata(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: j.namespace, Name: name, UID: types.UID(madeUID + name),
		CreationTimestamp: metav1.NewTime(j.now)}
}

// csv returns the ClusterServiceVersion of a version as OLM writes it: that among its manifests, or one that states the
// version and its properties alone.
func (j *judge) csv(h *hop) *unstructured.Unstructured {
	b := j.bundle(h.CSV)
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"version": h.Version}}}
	for _, manifest := range manifestsOf(b) {
		found := &unstructured.Unstructured{}
		if found.UnmarshalJSON(manifest) == nil && found.GetKind() == olm.KindClusterServiceVersion {
			u = found
		}
	}
	made := j.metadata(h.CSV)
	made.Labels, made.Annotations = u.GetLabels(), u.GetAnnotations()
	metav1.SetMetaDataAnnotation(&made, metakey.Properties, propertiesOf(b))
	u.SetGroupVersionKind(olm.ClusterServiceVersionGVK)
	u.Object["metadata"] = made
	if h.From != "" {
		_ = unstructured.SetNestedField(u.Object, h.From, "spec", "replaces") // one without a spec is not read
	}
	return u
}
