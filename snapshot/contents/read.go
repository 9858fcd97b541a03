// Package contents reads what InstallPlans bring: the manifests in a plan, or in the ConfigMaps that OLM unpacked its
// bundles into, and the installed objects that they replace. The comparison itself is package rules/change.
//
// The webhook never waits for it. A Cache answers from memory, reads in the background when a snapshot first shows a
// plan whose policy asks for consent, or that a Constraint judges by contents, and reads again when one of the objects
// changes. Of each ClusterServiceVersion it keeps the result of the comparison, a few kilobytes, and the lists that
// Constraints read, which package olm bounds; of the rest of a manifest nothing.
package contents

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"

	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/change"
	"github.com/opgate/opgate/rules/state"
)

// Source returns single objects as JSON; the namespace of a cluster-scoped one is empty. For an object that does not
// exist the error satisfies apierrors.IsNotFound.
type Source interface {
	Get(ctx context.Context, resource schema.GroupVersionResource, key types.NamespacedName) ([]byte, error)
}

// The resources that are read for every plan.
var (
	plans       = olm.InstallPlanGVK.GroupVersion().WithResource("installplans")
	csvs        = olm.ClusterServiceVersionGVK.GroupVersion().WithResource("clusterserviceversions")
	configMaps  = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"}
)

// errStale is returned while the objects that are read are not those of the snapshot that asks.
var errStale = errors.New("the API server has another version of it than the snapshot; it is read again")

// errUninstalled is returned for an installed ClusterServiceVersion that does not exist, but that a Subscription names.
// The plan is read again when the snapshot has another one.
var errUninstalled = errors.New("it does not exist, although a Subscription names it as installed")

// errDeleted is returned for a plan that does not exist.
var errDeleted = errors.New("it does not exist")

// Unpacked is a ConfigMap that a bundle was read from.
type Unpacked struct {
	types.NamespacedName
	// UID is empty if it does not exist or is empty.
	UID types.UID
	// Contents is the digest of its data and its encoding.
	Contents [sha256.Size]byte
}

// Reading is what a plan changes, and what that was derived from.
type Reading struct {
	state.PlanChanges
	Unpacked []Unpacked
	// Definitions are the names of the CustomResourceDefinitions that the plan writes.
	Definitions []string
	// Approved reports whether OLM may have written steps of the plan already, so that they are compared with
	// themselves.
	Approved bool
	// Finished reports whether OLM is done with the plan.
	Finished bool
}

// Read reads what a plan changes. An error means that it is not known (yet); what cannot be read whenever it is tried
// is in the Fault of a change set.
func Read(
	ctx context.Context, source Source, plan types.NamespacedName, replacements []state.Replacement,
) (*Reading, error) {
	stored, err := readPlan(ctx, source, plan, errDeleted)
	if err != nil {
		return nil, err
	}
	r := &reader{Source: source, namespace: plan.Namespace, plan: stored}
	r.Approved = stored.Spec.Approved
	r.Finished = stored.Finished()
	r.Plan, r.Replacements = stored.ContentsDigest(), replacements
	r.ByCSV, r.Bundles = map[string]*change.Set{}, map[string]*olm.Bundle{}
	for _, replacement := range replacements {
		set, err := r.compare(ctx, replacement)
		if err != nil {
			return nil, err
		}
		r.ByCSV[replacement.CSV] = set
	}
	return &r.Reading, nil
}

// readPlan reads a plan. missing is the cause of the error if it does not exist.
func readPlan(
	ctx context.Context, source Source, key types.NamespacedName, missing error,
) (plan *olm.InstallPlan, err error) {
	raw, err := source.Get(ctx, plans, key)
	if apierrors.IsNotFound(err) {
		err = missing
	}
	if err == nil {
		plan, err = olm.DecodePlan(raw)
	}
	if err != nil {
		return nil, fmt.Errorf("read InstallPlan %s: %w", key, err)
	}
	return plan, nil
}

// reader reads one plan.
type reader struct {
	Source
	Reading
	namespace string
	plan      *olm.InstallPlan
}

func (r *reader) compare(ctx context.Context, replaces state.Replacement) (*change.Set, error) {
	manifests, ref, fault, err := r.manifests(ctx, replaces.CSV)
	if err != nil {
		return nil, err
	}
	set := &change.Set{Fault: fault}
	r.Bundles[replaces.CSV] = &olm.Bundle{Fault: fault}
	if fault == "" {
		contents := change.ReadContents(replaces.CSV, r.namespace, manifests)
		if ref != nil {
			contents.Resolve(ref.Properties, ref.Replaces)
		}
		r.Bundles[replaces.CSV] = BundleOf(contents)
		installed, missing, err := r.installed(ctx, &replaces, manifests)
		switch {
		case errors.Is(err, errUninstalled):
			set.Fault = "what it replaces cannot be read: " + err.Error()
		case err != nil:
			return nil, err
		default:
			from := change.ReadContents(replaces.From, r.namespace, installed)
			from.Missing = missing
			set = change.Compare(from, contents)
		}
	}
	set.CSV, set.Package, set.Version, set.Channel = replaces.CSV, replaces.Package, replaces.Version, replaces.Channel
	set.Release = cmp.Or(replaces.Release, set.Release) // of a bundle by reference only its contents may have it
	set.From, set.FromVersion, set.FromRelease = replaces.From, replaces.FromVersion, replaces.FromRelease
	if replaces.Catalog != (olm.Catalog{}) {
		set.Catalog = replaces.Catalog.Namespace + "/" + replaces.Catalog.Name
	}
	return set, nil
}

// BundleOf returns what Constraints read of the contents of a bundle.
func BundleOf(c *change.Contents) *olm.Bundle {
	csv, err := c.ClusterServiceVersion()
	if err != nil {
		return &olm.Bundle{Fault: err.Error()}
	}
	csv.Spec.KeepDigest()
	return &olm.Bundle{Spec: &csv.Spec, Grants: c.Grants()}
}

// manifests returns the objects that a ClusterServiceVersion of the plan brings, with the reference to the ConfigMap
// that they are in, if they are; or the fault for which they cannot be read.
func (r *reader) manifests(
	ctx context.Context, csv string,
) (manifests []json.RawMessage, in *olm.Reference, fault string, err error) {
	found := false
	for i := range r.plan.Status.Steps {
		step := &r.plan.Status.Steps[i]
		if step.Resolving != csv && !step.WritesCSV(csv) {
			continue
		}
		found = true
		manifest, err := step.Resource.Manifest.JSON()
		if err != nil {
			return nil, nil, fmt.Sprintf("the manifest of %s %s in the plan cannot be read: %s",
				text.Name(step.Resource.Kind), text.Name(step.Resource.Name), text.Escape(err.Error())), nil
		}
		ref, ok := olm.ReadReference(manifest)
		switch {
		case !ok:
			manifests = append(manifests, typed(manifest, &step.Resource))
		case in == nil:
			in = &ref
			unpacked, fault, err := r.unpack(ctx, ref, &step.Resource)
			if fault != "" || err != nil {
				return nil, nil, fault, err
			}
			manifests = append(manifests, unpacked...)
		case *in != ref:
			return nil, nil, "its steps refer to different ConfigMaps", nil
		}
	}
	if !found {
		fault = "the plan has no step of it, since OLM has not unpacked its bundle"
	}
	return manifests, in, fault, nil
}

// unpack returns the manifests in the ConfigMap that a step refers to.
func (r *reader) unpack(
	ctx context.Context, ref olm.Reference, step *olm.StepResource,
) (manifests []json.RawMessage, fault string, err error) {
	key := types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
	name := "ConfigMap " + text.Name(key.String()) + ", which its bundle is unpacked into,"
	r.Unpacked = append(r.Unpacked, Unpacked{NamespacedName: key})
	if ref.Namespace != step.CatalogNamespace || ref.CatalogNamespace != step.CatalogNamespace ||
		ref.CatalogName != step.CatalogName {
		return nil, name + " is not in the namespace of its catalog", nil
	}
	raw, err := r.Get(ctx, configMaps, key)
	files, _ := r.Source.(*Files)
	switch {
	case apierrors.IsNotFound(err) && files != nil && files.Partial: // it may exist
		return nil, name + " is not in the input: add what kubectl get configmap " + text.Name(key.Name) + " -n " +
			text.Name(key.Namespace) + " -o yaml prints", nil
	case apierrors.IsNotFound(err):
		return nil, name + " does not exist; delete the plan, and OLM unpacks the bundle again", nil
	case err != nil:
		return nil, "", fmt.Errorf("read ConfigMap %s: %w", key, err)
	}
	var object struct {
		Metadata struct {
			UID         types.UID         `json:"uid"`
			Labels      map[string]string `json:"labels"`
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
		Data       json.RawMessage `json:"data"`
		BinaryData json.RawMessage `json:"binaryData"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &object); err != nil {
		return nil, name + " cannot be read: " + text.Escape(err.Error()), nil
	}
	found := &r.Unpacked[len(r.Unpacked)-1]
	if len(object.Data)+len(object.BinaryData) > 0 {
		found.UID, found.Contents = object.Metadata.UID,
			sha256.Sum256(slices.Concat([]byte(object.Metadata.Annotations[metakey.ContentEncoding]+"\x00"), object.Data, []byte{0},
				object.BinaryData))
	}
	if object.Metadata.Labels[metakey.OLMManaged] != "true" {
		return nil, name + " is not OLM's: it lacks label " + metakey.OLMManaged + "=true", nil
	}
	if manifests, err = change.Unpack(raw); err != nil {
		return nil, name + " cannot be read: " + text.Escape(err.Error()), nil
	}
	return manifests, "", nil
}

// typed returns a manifest with the kind of its step, as which OLM writes it whatever the manifest says. OLM derives
// RBAC objects without one.
func typed(manifest json.RawMessage, step *olm.StepResource) json.RawMessage {
	apiVersion, kind := schema.GroupVersion{Group: step.Group, Version: step.Version}.String(), step.Kind
	if kind == "BundleSecret" { // a Secret of the bundle
		kind = "Secret"
	}
	if h := partialOf(manifest); h.Kind == kind && h.APIVersion == apiVersion {
		return manifest
	}
	var object map[string]json.RawMessage
	if kjson.UnmarshalCaseSensitivePreserveInts(manifest, &object) != nil || object == nil {
		return manifest // the comparison says what is wrong with it
	}
	for field, value := range map[string]string{"apiVersion": apiVersion, "kind": kind} {
		object[field], _ = json.Marshal(value) // a string always encodes
	}
	raw, err := json.Marshal(object)
	if err != nil {
		panic(err) // built from decoded JSON
	}
	return raw
}

type partialObject struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Namespace         string `json:"namespace"`
		Name              string `json:"name"`
		CreationTimestamp string `json:"creationTimestamp"`
	} `json:"metadata"`
}

func partialOf(manifest []byte) (h partialObject) {
	// what does not decode replaces nothing, and the comparison refuses it
	_ = kjson.UnmarshalCaseSensitivePreserveInts(manifest, &h)
	return h
}

// installed returns what manifests replace: the ClusterServiceVersion of the package, what its plan brought along
// with it, and the stored CustomResourceDefinitions of the same names. missing is why what it brought is not known.
// Other stored objects are not read: who may write them could prepare there what the next version brings.
func (r *reader) installed(ctx context.Context, replaces *state.Replacement, manifests []json.RawMessage) (
	installed []json.RawMessage, missing string, err error) {
	if replaces.From != "" {
		csv, err := r.installedCSV(ctx, replaces)
		if err != nil {
			return nil, "", err
		}
		if installed, missing, err = r.installedBundle(ctx, replaces, csv); err != nil {
			return nil, "", err
		}
	}
	for _, m := range manifests {
		h := partialOf(m)
		if !isDefinition(&h) || h.Metadata.Name == "" || len(content.IsPathSegmentName(h.Metadata.Name)) > 0 {
			continue // no object has such a name
		}
		r.Definitions = append(r.Definitions, h.Metadata.Name)
		raw, err := r.Get(ctx, definitions, types.NamespacedName{Name: h.Metadata.Name})
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, "", fmt.Errorf("read CustomResourceDefinition %s: %w", text.Name(h.Metadata.Name), err)
		default:
			installed = append(installed, raw)
		}
	}
	return installed, missing, nil
}

func isDefinition(h *partialObject) bool {
	return resources[schema.FromAPIVersionAndKind(h.APIVersion, h.Kind).GroupKind()] == definitions
}

// installedCSV returns the installed ClusterServiceVersion.
func (r *reader) installedCSV(ctx context.Context, replaces *state.Replacement) ([]byte, error) {
	key := types.NamespacedName{Namespace: r.namespace, Name: replaces.From}
	raw, err := r.Get(ctx, csvs, key)
	if apierrors.IsNotFound(err) {
		err = errUninstalled
	}
	var csv *olm.CSV
	if err == nil {
		csv, err = olm.Decode[olm.CSV](raw)
	}
	if err == nil && csv.Spec.ContentsDigest() != replaces.FromDigest {
		err = errStale
	}
	if err != nil {
		return nil, fmt.Errorf("read ClusterServiceVersion %s: %w", key, err)
	}
	return raw, nil
}

// installedBundle returns the installed ClusterServiceVersion and the other objects of its bundle as the plan that installed
// it has them, without the definitions, or why these are not known. Only OLM writes plans in a governed namespace.
func (r *reader) installedBundle(
	ctx context.Context, replaces *state.Replacement, csv json.RawMessage,
) (all []json.RawMessage, missing string, err error) {
	all = []json.RawMessage{csv}
	if replaces.FromPlan == "" {
		return all, "there is not exactly one InstallPlan that installed it", nil
	}
	key := types.NamespacedName{Namespace: r.namespace, Name: replaces.FromPlan}
	plan, err := readPlan(ctx, r.Source, key, errStale)
	if err != nil {
		return nil, "", err
	}
	if !plan.Installed(replaces.From) {
		return nil, "", fmt.Errorf("read InstallPlan %s: %w", key, errStale)
	}
	if !plan.RanAt(partialOf(csv).Metadata.CreationTimestamp) {
		return all, fmt.Sprintf("InstallPlan %s did not run when it was installed", text.Name(key.String())), nil
	}
	before := &reader{Source: r.Source, namespace: r.namespace, plan: plan}
	manifests, _, fault, err := before.manifests(ctx, replaces.From)
	switch {
	case apierrors.IsForbidden(err):
		return all, text.Escape(err.Error()), nil
	case err != nil || fault != "":
		return all, fault, err
	}
	for _, m := range manifests {
		if h := partialOf(m); h.Kind != olm.KindClusterServiceVersion && !isDefinition(&h) {
			all = append(all, m)
		}
	}
	return all, "", nil
}
