package plan

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/operator-framework/operator-registry/alpha/property"
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
	// MinKubeVersion and MaxOpenShiftVersion are "" if the catalog has none.
	MinKubeVersion      string `json:"minKubeVersion"`
	MaxOpenShiftVersion string `json:"maxOpenShiftVersion"`
	// Changes are those beyond what is installed before; NotCompared is why they are not known.
	Changes     []change.Difference `json:"changes"`
	Digest      string              `json:"digest"`
	NotCompared string              `json:"notCompared,omitempty"`
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
	known := j.pkg(j.catalog)
	j.builder.Packages = func(pkg, csv string, source olm.Catalog) *catalog.Package {
		if pkg == j.name && source == j.catalog {
			return known
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
	return j.install(&hop{CSV: from.name, Version: j.versionOf(from.name), From: before})
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
	s := &step{hop: h, Deprecated: j.deprecations(h.CSV, h.Channel), Changes: []change.Difference{}, By: []string{},
		Warnings: []string{}}
	_, s.MinKubeVersion, _ = j.contents(h.CSV) // an error is that of the plan
	var openShift any
	if j.property(h.CSV, "olm.maxOpenShiftVersion", &openShift); openShift != nil {
		s.MaxOpenShiftVersion = fmt.Sprint(openShift)
	}
	plan := j.waiting(h.CSV)
	if plan != nil {
		s.Plan = plan.Metadata.Key()
	} else {
		made, err := j.plan(&h, olm.PhaseRequiresApproval)
		if err == nil {
			err = j.put(snapshot.InstallPlans, made)
		}
		if err == nil {
			err = j.subscribe(h.From, h.CSV, planName(h.CSV))
		}
		if err != nil {
			return nil, err
		}
		plans := j.last.Namespace(j.namespace).Plans()
		plan = plans[slices.IndexFunc(plans, func(p *olm.InstallPlan) bool { return p.Metadata.Name == planName(h.CSV) })]
	}
	cluster := &inspect.Cluster{Snapshot: j.last, Now: j.now}
	answer := cluster.JudgePlan(plan)
	s.Decision, s.Reasons = answer.Decision.String(), inspect.Reasons(&answer.Verdict)
	for _, w := range inspect.Warnings(&answer.Verdict) {
		s.Warnings = append(s.Warnings, w.Message)
	}
	s.Disposition = verdict.Ungoverned.String()
	for _, o := range answer.Operators {
		if o.CSV == h.CSV {
			s.Disposition, s.By = o.Disposition, append(s.By, o.By...)
		}
	}
	j.compare(s, plan)
	return s, j.install(&h)
}

// compare sets what a step changes.
func (j *judge) compare(s *step, plan *olm.InstallPlan) {
	set := j.changes(plan, carrier.Replacements(j.last.Namespace(j.namespace), plan)).ByCSV[s.CSV]
	switch {
	case set == nil:
		s.NotCompared = "its package is not known"
	case set.Fault != "" && s.Plan == "" && len(j.manifestsOf(s.CSV)) == 0:
		s.NotCompared = withoutContents
	case set.Fault != "":
		s.NotCompared = set.Fault
	default:
		s.Digest, s.Changes = set.Digest(), append(s.Changes, set.Differences...)
	}
}

// withoutContents is why most steps are not compared: newer catalogs have images alone.
const withoutContents = "the catalog does not have its contents (olm.bundle.object)"

func (j *judge) manifestsOf(csv string) []json.RawMessage {
	manifests, _, _ := j.contents(csv)
	return manifests
}

// waiting returns the plan for a version that waits for approval; nil if there is none.
func (j *judge) waiting(csv string) *olm.InstallPlan {
	ns := j.last.Namespace(j.namespace)
	for _, plan := range ns.Plans() {
		if plan.Brings(csv) && ns.Waits(plan) {
			return plan
		}
	}
	return nil
}

// put stores an object.
func (j *judge) put(kind *snapshot.Kind, object map[string]any) error {
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
	plan, err := j.plan(h, olm.PhaseComplete)
	if err != nil {
		return err
	}
	if err := j.put(snapshot.InstallPlans, plan); err != nil {
		return err
	}
	if old := j.last.Object(snapshot.ClusterServiceVersions, snapshot.InNamespace(j.namespace),
		types.NamespacedName{Namespace: j.namespace, Name: h.From}); old != nil {
		j.last = j.builder.Remove(time.Time{}, old)
	}
	manifests := j.manifestsOf(h.CSV)
	for _, manifest := range manifests {
		j.made.Add(manifest, j.namespace) // of which definitions are compared
	}
	if err := j.put(snapshot.ClusterServiceVersions, j.csv(h, manifests)); err != nil {
		return err
	}
	return j.subscribe(h.CSV, h.CSV, "")
}

func planName(csv string) string { return "install-" + csv }

// plan returns the InstallPlan that OLM makes for a version: with its manifests as steps, or with references to the
// ConfigMap that it unpacks a bundle image into.
func (j *judge) plan(h *hop, phase string) (map[string]any, error) {
	manifests, _, err := j.contents(h.CSV)
	if err != nil {
		return nil, err
	}
	properties, err := j.properties(h.CSV)
	if err != nil {
		return nil, err
	}
	image := ""
	if b := j.bundles[h.CSV]; b != nil {
		image = b.Image
	}
	status, reference := map[string]any{"phase": phase, "catalogSources": []any{}}, ""
	if image != "" || len(manifests) == 0 {
		status["bundleLookups"] = []any{map[string]any{"path": image, "identifier": h.CSV, "replaces": h.From,
			"catalogSourceRef": map[string]any{"name": j.catalog.Name, "namespace": j.catalog.Namespace},
			"properties":       properties}}
		if len(manifests) > 0 && j.catalog != (olm.Catalog{}) {
			if reference, err = j.unpacked(h, properties, manifests); err != nil {
				return nil, err
			}
		}
	}
	steps := []any{}
	for _, raw := range manifests {
		u := &unstructured.Unstructured{}
		if err := json.Unmarshal(raw, &u.Object); err != nil {
			return nil, fmt.Errorf("a manifest of bundle %s: %w", h.CSV, err)
		}
		gvk := u.GroupVersionKind()
		if gvk.Kind == olm.KindClusterServiceVersion {
			if raw, err = json.Marshal(j.csv(h, manifests)); err != nil {
				return nil, err
			}
		}
		steps = append(steps, map[string]any{"resolving": h.CSV,
			"status": map[bool]string{true: "Created"}[phase == olm.PhaseComplete],
			"resource": map[string]any{"group": gvk.Group, "version": gvk.Version, "kind": gvk.Kind, "name": u.GetName(),
				"sourceName": j.catalog.Name, "sourceNamespace": j.catalog.Namespace,
				"manifest": cmp.Or(reference, string(raw))}})
	}
	status["plan"] = steps
	made := j.object(olm.InstallPlanGVK, planName(h.CSV))
	made["spec"] = map[string]any{"clusterServiceVersionNames": []any{h.CSV}, "approval": olm.ApprovalManual,
		"approved": phase == olm.PhaseComplete}
	if phase == olm.PhaseComplete {
		status["conditions"] = []any{map[string]any{"type": "Installed", "status": "True", "lastTransitionTime": j.at()}}
	}
	made["status"] = status
	return made, nil
}

func (j *judge) at() string { return j.now.UTC().Format(time.RFC3339) }

// object returns the beginning of an object.
func (j *judge) object(kind schema.GroupVersionKind, name string) map[string]any {
	return map[string]any{"apiVersion": kind.GroupVersion().String(), "kind": kind.Kind, "metadata": map[string]any{
		"namespace": j.namespace, "name": name, "uid": madeUID + name, "creationTimestamp": j.at()}}
}

// unpacked adds the ConfigMap that OLM unpacks a bundle into, and returns what the steps have in place of manifests.
func (j *judge) unpacked(h *hop, properties string, manifests []json.RawMessage) (reference string, err error) {
	data := map[string]string{}
	for i, raw := range manifests {
		data[fmt.Sprintf("%d.json", i)] = string(raw)
	}
	made := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, Data: data,
		ObjectMeta: metav1.ObjectMeta{Namespace: j.catalog.Namespace, Name: madeUID + h.CSV, UID: madeUID,
			Labels: map[string]string{metakey.OLMManaged: "true"}}}
	raw, err := json.Marshal(made)
	if err != nil {
		return "", err
	}
	j.made.Add(raw, j.catalog.Namespace)
	raw, err = json.Marshal(olm.Reference{Kind: made.Kind, Name: made.Name, Namespace: made.Namespace,
		CatalogName: j.catalog.Name, CatalogNamespace: made.Namespace, Replaces: h.From, Properties: properties})
	return string(raw), err
}

// csv returns the ClusterServiceVersion of a version as OLM writes it: that among its manifests, or one that states the
// version and its properties alone.
func (j *judge) csv(h *hop, manifests []json.RawMessage) map[string]any {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"version": h.Version}}}
	for _, raw := range manifests {
		found := &unstructured.Unstructured{}
		if json.Unmarshal(raw, &found.Object) == nil && found.GetKind() == olm.KindClusterServiceVersion {
			u = found
		}
	}
	labels, annotations := u.GetLabels(), map[string]string{}
	maps.Copy(annotations, u.GetAnnotations())
	annotations[metakey.Properties], _ = j.properties(h.CSV) // an error is that of the plan
	maps.Copy(u.Object, j.object(olm.ClusterServiceVersionGVK, h.CSV))
	u.SetAnnotations(annotations)
	u.SetLabels(labels)
	if spec, ok := u.Object["spec"].(map[string]any); ok && h.From != "" {
		spec["replaces"] = h.From
	}
	return u.Object
}

// properties returns those of a bundle as OLM writes them: without its contents.
func (j *judge) properties(csv string) (string, error) {
	kept := []property.Property{}
	if b := j.bundles[csv]; b != nil {
		for _, p := range b.Properties {
			if p.Type != property.TypeBundleObject && p.Type != property.TypeCSVMetadata {
				kept = append(kept, p)
			}
		}
	}
	raw, err := json.Marshal(map[string]any{"properties": kept})
	return string(raw), err
}
