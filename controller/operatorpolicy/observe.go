package operatorpolicy

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/controller/operatorpolicy/compliance"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/snapshot"
	"github.com/opgate/opgate/stream"
)

// observed is the observed state of a namespace, in the form that all its policies share.
type observed struct {
	exists        bool
	groups        []compliance.OperatorGroup
	subscriptions []compliance.Subscription
	csvs          []compliance.CSV
	deployments   map[string]compliance.Deployment
	catalogs      []olm.Catalog
}

// observe reads a namespace from a snapshot, without requests to the API server.
func observe(s *snapshot.Snapshot, namespace string) *observed {
	w := &observed{deployments: map[string]compliance.Deployment{}}
	if namespace == "" {
		return w
	}
	ns := s.Namespace(namespace)
	w.exists = ns.Exists() && !ns.Deleting()
	w.groups, w.subscriptions = groups(s, namespace), subscriptions(s, namespace)
	for _, o := range s.Objects(snapshot.ClusterServiceVersions, snapshot.InNamespace(namespace)) {
		w.csvs = append(w.csvs, csv(o))
	}
	for _, o := range s.Objects(snapshot.Deployments, snapshot.InNamespace(namespace)) {
		w.deployments[o.Name] = deployment(o.Unstructured())
	}
	for o := range s.Each(snapshot.CatalogSources) {
		w.catalogs = append(w.catalogs, olm.Catalog{Namespace: o.Namespace, Name: o.Name})
	}
	slices.SortFunc(w.catalogs, func(a, b olm.Catalog) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return w
}

func groups(s *snapshot.Snapshot, namespace string) (groups []compliance.OperatorGroup) {
	for _, o := range s.Objects(snapshot.OperatorGroups, snapshot.InNamespace(namespace)) {
		u := o.Unstructured()
		groups = append(groups, compliance.OperatorGroup{Object: object(u, true), GenerateName: u.GetGenerateName()})
	}
	return groups
}

func subscriptions(s *snapshot.Snapshot, namespace string) (subscriptions []compliance.Subscription) {
	for _, o := range s.Objects(snapshot.Subscriptions, snapshot.InNamespace(namespace)) {
		subscriptions = append(subscriptions, subscription(o.Unstructured()))
	}
	return subscriptions
}

// crds returns the CustomResourceDefinitions that OLM labelled as an operator's, sorted by name.
func crds(s *snapshot.Snapshot, pkg, namespace string) []compliance.Object {
	var found []compliance.Object
	for o := range s.Each(snapshot.CustomResourceDefinitions) {
		if belongs(o.Definition(), pkg, namespace) {
			found = append(found, object(o.Unstructured(), true))
		}
	}
	slices.SortFunc(found, func(a, b compliance.Object) int { return cmp.Compare(a.Name, b.Name) })
	return found
}

// belongs reports whether OLM has labelled a CustomResourceDefinition as an operator's.
func belongs(d *snapshot.Definition, pkg, namespace string) bool {
	return d != nil && len(d.Operators) > 0 && slices.Contains(d.Operators, compliance.OperatorLabel(pkg, namespace))
}

// catalogSource returns a CatalogSource, or nil.
func catalogSource(s *snapshot.Snapshot, c olm.Catalog) *compliance.CatalogSource {
	o := s.Find(snapshot.CatalogSources, types.NamespacedName{Namespace: c.Namespace, Name: c.Name})
	if o == nil {
		return nil
	}
	u := o.Unstructured()
	return &compliance.CatalogSource{Object: object(u, false), State: text(u, "status", "connectionState", "lastObservedState")}
}

func object(u *unstructured.Unstructured, content bool) compliance.Object {
	o := compliance.Object{Namespace: u.GetNamespace(), Name: u.GetName(), UID: string(u.GetUID()), Labels: u.GetLabels(),
		Annotations: u.GetAnnotations(), Owned: owned(u), Deleting: u.GetDeletionTimestamp() != nil,
		Created: u.GetCreationTimestamp().UTC().Format(time.RFC3339)}
	if content {
		o.Content = u.Object
	}
	return o
}

// owned reports whether an object has owners; true if they are too many to be stored.
func owned(u *unstructured.Unstructured) bool {
	owners, _, _ := unstructured.NestedFieldNoCopy(u.Object, "metadata", "ownerReferences")
	return len(u.GetOwnerReferences()) > 0 || stream.Withheld(owners)
}

func subscription(u *unstructured.Unstructured) compliance.Subscription {
	s := compliance.Subscription{
		Object:       object(u, true),
		Package:      text(u, "spec", "name"),
		Channel:      text(u, "spec", "channel"),
		StartingCSV:  text(u, "spec", "startingCSV"),
		Catalog:      olm.Catalog{Namespace: text(u, "spec", "sourceNamespace"), Name: text(u, "spec", "source")},
		InstalledCSV: text(u, "status", "installedCSV"),
		CurrentCSV:   text(u, "status", "currentCSV"),
		State:        text(u, "status", "state"),
		InstallPlan:  text(u, "status", "installPlanRef", "name"),
	}
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions") // of another type: there are none
	for _, entry := range conditions {
		c, ok := entry.(map[string]any)
		if !ok {
			continue
		}
		field := func(name string) string { s, _ := c[name].(string); return s }
		condition := compliance.SubscriptionCondition{Type: field("type"), Status: field("status"), Reason: field("reason"), Message: field("message")}
		if at, err := time.Parse(time.RFC3339, field("lastTransitionTime")); err == nil {
			condition.LastTransitionTime = at
		}
		s.Conditions = append(s.Conditions, condition)
	}
	return s
}

func csv(o *snapshot.Object) compliance.CSV {
	u := o.Unstructured()
	c := compliance.CSV{
		Object:     object(u, true),
		Phase:      text(u, "status", "phase"),
		Reason:     text(u, "status", "reason"),
		Message:    text(u, "status", "message"),
		CopiedFrom: text(u, "metadata", "labels", olm.CopiedFromLabel),
	}
	c.Package, c.Version = o.Bundle()
	c.Unmet, _, _ = unstructured.NestedStringSlice(u.Object, "status", "unmet")           // set when the object was trimmed
	c.Deployments, _, _ = unstructured.NestedStringSlice(u.Object, "spec", "deployments") // set when the object was trimmed
	modes, _, _ := unstructured.NestedSlice(u.Object, "spec", "installModes")             // of another type: there are none
	for _, entry := range modes {
		if mode, ok := entry.(map[string]any); ok {
			name, _ := mode["type"].(string)
			supported, _ := mode["supported"].(bool)
			if c.InstallModes == nil {
				c.InstallModes = map[string]bool{}
			}
			c.InstallModes[name] = supported
		}
	}
	return c
}

// deployment returns a Deployment, as available if the controller has observed its present generation and all desired
// replicas exist, of that generation, and are available (R-ST-11).
func deployment(u *unstructured.Unstructured) compliance.Deployment {
	number := func(or int64, fields ...string) int64 {
		if n, ok, err := unstructured.NestedInt64(u.Object, fields...); ok && err == nil {
			return n
		}
		return or
	}
	wanted := number(1, "spec", "replicas")
	stalled, _, _ := unstructured.NestedBool(u.Object, "status", "stalled") // set when the object was trimmed
	return compliance.Deployment{Object: object(u, false), Stalled: stalled, Available: number(0, "status", "observedGeneration") >= u.GetGeneration() &&
		number(0, "status", "unavailableReplicas") == 0 && number(0, "status", "availableReplicas") >= wanted}
}

// text returns a string field, or "" if it is not set.
func text(u *unstructured.Unstructured, fields ...string) string {
	s, _, _ := unstructured.NestedString(u.Object, fields...) // of another type, it counts as unset
	return s
}
