package contents

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/state"
)

// Files is a Source of the objects in files. The zero value has none.
type Files struct {
	// Partial is set for files that need not have all objects of a cluster. Default: what is missing does not exist.
	Partial bool
	objects map[fileKey][]byte
}

type fileKey struct {
	schema.GroupVersionResource
	types.NamespacedName
}

// Add adds the JSON of an object; one of a kind that is never read is ignored. namespace is that of an object that
// names none.
func (f *Files) Add(raw []byte, namespace string) {
	h := partialOf(raw) // what does not decode is of no kind, and the reader of the files says so
	resource, ok := resources[schema.FromAPIVersionAndKind(h.APIVersion, h.Kind).GroupKind()]
	if !ok {
		return
	}
	key := types.NamespacedName{Namespace: h.Metadata.Namespace, Name: h.Metadata.Name}
	switch {
	case resource == definitions: // cluster-scoped
		key.Namespace = ""
	case key.Namespace == "":
		key.Namespace = namespace
	}
	if f.objects == nil {
		f.objects = map[fileKey][]byte{}
	}
	f.objects[fileKey{resource, key}] = raw
}

// Get implements Source.
func (f *Files) Get(_ context.Context, resource schema.GroupVersionResource, key types.NamespacedName) ([]byte, error) {
	raw, ok := f.objects[fileKey{resource, key}]
	if !ok {
		return nil, apierrors.NewNotFound(resource.GroupResource(), key.Name)
	}
	return raw, nil
}

// Changes implements rules.Changes for plans in files.
func (f *Files) Changes(plan *olm.InstallPlan, replacements []state.Replacement) *state.PlanChanges {
	return Changes(context.Background(), f, plan, replacements) //nolint:forbidigo // the objects are in memory, nothing waits
}

// Changes returns what a plan changes by a source, with why where that is not known.
func Changes(
	ctx context.Context, source Source, plan *olm.InstallPlan, replacements []state.Replacement,
) *state.PlanChanges {
	r, err := Read(ctx, source, types.NamespacedName{Namespace: plan.Metadata.Namespace, Name: plan.Metadata.Name},
		replacements)
	if err != nil {
		return unread(plan.ContentsDigest(), replacements, err.Error())
	}
	return &r.PlanChanges
}

// resources are the resources of the kinds that are read.
var resources = map[schema.GroupKind]schema.GroupVersionResource{
	olm.InstallPlanGVK.GroupKind():                               plans,
	olm.ClusterServiceVersionGVK.GroupKind():                     csvs,
	{Kind: "ConfigMap"}:                                          configMaps,
	{Group: definitions.Group, Kind: "CustomResourceDefinition"}: definitions,
}
