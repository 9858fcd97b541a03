package snapshot

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	kjson "sigs.k8s.io/json"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/stream"
)

// storedConstraint is a Constraint as it is stored, and prepared for judging.
type storedConstraint struct {
	object     *constraintv1.Constraint
	definition *constraint.Definition
}

// decodeObject decodes an object without the status, finalizers and annotations that controllers write. Large metadata
// that is not read is dropped: managed fields, owners but the first, and the last-applied annotation of kubectl.
func decodeObject(raw []byte, into metav1.Object) error {
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, into); err != nil {
		return err
	}
	leaveOut(into)
	return nil
}

func leaveOut(from metav1.Object) {
	from.SetManagedFields(nil)
	if owners := from.GetOwnerReferences(); len(owners) > 1 {
		from.SetOwnerReferences(slices.Clone(owners[:1])) // events are about it
	}
	annotations := from.GetAnnotations()
	delete(annotations, metakey.LastApplied)
	from.SetAnnotations(annotations)
}

func decodeConstraint(raw []byte) (any, error) {
	object, strict, err := rules.DecodeConstraint(raw)
	if err != nil {
		return nil, err
	}
	leaveOut(object)
	return &storedConstraint{object, rules.NewDefinition(object, strict)}, nil
}

// salvageConstraint retains a stored Constraint that does not decode as one that holds everything, and that
// protects what it says: every operator if that does not decode either.
func salvageConstraint(m *metav1.ObjectMeta, raw []byte, cause error) any {
	object := &constraintv1.Constraint{ObjectMeta: metav1.ObjectMeta{Name: m.Name, UID: m.UID,
		Generation: m.Generation}}
	var part struct {
		Spec struct {
			Deletion json.RawMessage `json:"deletion"`
		} `json:"spec"`
	}
	_ = kjson.UnmarshalCaseSensitivePreserveInts(raw, &part) // what is not read is absent
	if deletion := part.Spec.Deletion; len(deletion) > 0 && string(deletion) != "null" {
		object.Spec.Deletion = &constraintv1.ConstraintDeletion{}
		if err := kjson.UnmarshalCaseSensitivePreserveInts(deletion, object.Spec.Deletion); err != nil {
			object.Spec.Deletion = &constraintv1.ConstraintDeletion{Action: policyv1beta2.DeletionDeny}
		}
	}
	return &storedConstraint{object, rules.NewDefinition(object, []error{cause})}
}

func decodeNamespace(raw []byte) (any, error) {
	n := &metav1.PartialObjectMetadata{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, n); err != nil {
		return nil, err
	}
	maps.DeleteFunc(n.Annotations, func(name, _ string) bool { return !strings.HasPrefix(name, metakey.OwnPrefix) })
	if len(n.Annotations) == 0 {
		n.Annotations = nil
	}
	return &metav1.ObjectMeta{UID: n.UID, Labels: n.Labels, Annotations: n.Annotations,
		DeletionTimestamp: n.DeletionTimestamp}, nil
}

func addNamespace(to *rules.Cluster, value any) {
	n, into := value.(*metav1.ObjectMeta), to.Contents()
	into.Exists, into.UID, into.Labels, into.Deleting = true, string(n.UID), n.Labels, n.DeletionTimestamp != nil
}

func decodeSubscription(raw []byte) (any, error) {
	s, err := olm.Decode[olm.Subscription](raw)
	if err != nil {
		return nil, err
	}
	s.Metadata.Trim()
	s.Spec.Config = s.Spec.Config.Read() // once, and not for each bundle that is judged
	return s, nil
}

// salvageSubscription retains one that does not decode as a Subscription to nothing.
func salvageSubscription(m *metav1.ObjectMeta, _ []byte, _ error) any {
	return &olm.Subscription{Metadata: metadataOf(m)}
}

func decodePlan(raw []byte) (any, error) {
	p, err := olm.DecodePlan(raw)
	if err != nil {
		return nil, err
	}
	p.Metadata.Trim()
	carrier.PreparePlan(p)
	p.Trim()
	return p, nil
}

func decodeCSV(raw []byte) (any, error) {
	csv, err := olm.Decode[olm.CSV](raw)
	if err != nil {
		return nil, err
	}
	csv.Status = olm.ReadCSVStatus(raw)
	m, status := &csv.Metadata, &csv.Status // texts that recur in the copies of one
	for _, recurs := range []*string{&m.Name, &m.Labels.CopiedFrom, &m.Annotations.OperatorNamespace, &status.Phase,
		&status.Reason, &status.Message} {
		*recurs = once(*recurs)
	}
	csv.Spec.KeepDigest()
	csv.Bundle = csv.StatedBundle()
	csv.Metadata.Trim()
	if !state.InstallsOperator(csv) { // only its package is read
		csv.Bundle = olm.Bundle{Name: csv.Metadata.Name, Package: csv.Bundle.Package, Version: csv.Bundle.Version}
		csv.Spec, csv.Status.InstallModes = olm.CSVSpec{}, nil
	}
	keepVirtual(csv, raw)
	return csv, nil
}

// keepVirtual retains what Opgate itself writes of a virtual operator.
func keepVirtual(csv *olm.CSV, raw []byte) {
	if csv.IsVirtual() {
		csv.Written, _ = json.Marshal(stream.Pick(raw, virtualOperator)) // decoded JSON always encodes
	}
}

// virtualOperator are the fields that are retained of a virtual operator. Tenants may write the label, and objects as
// large as the API server accepts: a field that is too large is replaced by a placeholder text (stream.Withheld).
var virtualOperator = stream.Fields{"metadata": {"name": nil, "namespace": nil, "uid": nil, "deletionTimestamp": nil,
	"ownerReferences": nil, "labels": {metakey.CopiedFrom: nil, metakey.VirtualOperator: nil,
		metakey.ManagedBy: nil},
	"annotations": {metakey.OperatorNamespace: nil, metakey.Properties: nil}},
	"spec": {stream.Any: nil}}

// salvageCSV retains one that does not decode as installed, of an unknown package. Copies by OLM
// are omitted, as in decodeCSV.
func salvageCSV(m *metav1.ObjectMeta, raw []byte, _ error) any {
	csv := &olm.CSV{Metadata: metadataOf(m), Bundle: olm.Bundle{Name: m.Name}}
	labels := stream.Pick(raw, stream.Fields{"metadata": {"labels": {metakey.CopiedFrom: nil,
		metakey.VirtualOperator: nil}}})
	text := func(label string) (string, bool) {
		s, found, err := unstructured.NestedString(labels, "metadata", "labels", label)
		return s, found && err == nil // of another type, it counts as unset
	}
	csv.Metadata.Labels.CopiedFrom, _ = text(metakey.CopiedFrom)
	if constraint, found := text(metakey.VirtualOperator); found {
		csv.Metadata.Labels.VirtualOperator = &constraint
	}
	keepVirtual(csv, raw)
	return csv
}

func decodeOperatorGroup(raw []byte) (any, error) {
	g, err := olm.Decode[olm.OperatorGroup](raw)
	if err != nil {
		return nil, err
	}
	g.Trim()
	return g, nil
}

func salvageOperatorGroup(m *metav1.ObjectMeta, raw []byte, _ error) any {
	return olm.UnreadableGroup(metadataOf(m), raw)
}

// Deployment is the part of a Deployment that is stored.
type Deployment struct {
	// Available reports whether the controller has observed the present generation, and all desired replicas exist, of
	// that generation, and are available.
	Available bool
	// Stalled reports whether the Deployment has exceeded its progress deadline.
	Stalled bool
}

func decodeDeployment(raw []byte) (any, error) {
	var o struct {
		Metadata struct {
			Generation int64 `json:"generation"`
		} `json:"metadata"`
		Spec struct {
			Replicas *int32 `json:"replicas"`
		} `json:"spec"`
		Status appsv1.DeploymentStatus `json:"status"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &o); err != nil {
		return nil, err
	}
	d := &Deployment{Available: o.Status.ObservedGeneration >= o.Metadata.Generation &&
		o.Status.UnavailableReplicas == 0 && o.Status.AvailableReplicas >= ptr.Deref(o.Spec.Replicas, 1)}
	for _, c := range o.Status.Conditions {
		d.Stalled = d.Stalled || c.Reason == "ProgressDeadlineExceeded"
	}
	return d, nil
}

// decodeRecords decodes the ConfigMap with the records of catalogs, to which every namespace may refer, and those with
// what was installed in one namespace. A record of a catalog that cannot be read is left out, so that what needs it is
// held. Other ConfigMaps count for nothing.
func decodeRecords(raw []byte) (any, error) {
	var object struct {
		Metadata struct {
			Name              string `json:"name"`
			CreationTimestamp string `json:"creationTimestamp"`
		} `json:"metadata"`
		Data map[string]string `json:"data"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &object); err != nil {
		return nil, err
	}
	if !subjectOfRecords(object.Metadata.Name).cluster {
		installed, err := state.DecodeInstallRecord(object.Metadata.Name, object.Data[state.RecordKey])
		if err != nil {
			return nil, err
		}
		installed.Since = object.Metadata.CreationTimestamp
		return installed, nil
	}
	if object.Metadata.Name != catalog.RecordsName {
		return nil, nil
	}
	histories := map[olm.Catalog]*catalog.History{}
	for key, text := range object.Data {
		if r, err := catalog.DecodeRecord(text); err == nil && catalog.RecordKey(r.Catalog()) == key {
			histories[r.Catalog()] = &catalog.History{Polls: r.Polls, Seen: r.Seen}
		}
	}
	return histories, nil
}

// subjectOfRecords returns the subject of a ConfigMap in Opgate's own namespace.
func subjectOfRecords(name string) Subject {
	if namespace, ok := state.RecordedNamespace(name); ok {
		return InNamespace(namespace)
	}
	return InCluster()
}

func addRecords(to *rules.Cluster, value any) {
	switch value := value.(type) {
	case *state.InstallRecord:
		to.Contents().Record = value
	case map[olm.Catalog]*catalog.History:
		for of, history := range value {
			to.Facts.AddHistory(of, history)
		}
	}
}

// optional makes the decoding of a kind of which some objects count for nothing.
func optional[T any](decode func(raw []byte) (*T, error)) func([]byte) (any, error) {
	return func(raw []byte) (any, error) {
		value, err := decode(raw)
		if value == nil || err != nil {
			return nil, err
		}
		return value, nil
	}
}

// adding makes the function that adds the values of a kind.
func adding[T any](add func(*rules.Cluster, T)) func(*rules.Cluster, any) {
	return func(to *rules.Cluster, value any) { add(to, value.(T)) }
}

// addingTo makes the function that adds the values of a kind to their namespaces.
func addingTo[T any](add func(*state.NamespaceContents, T)) func(*rules.Cluster, any) {
	return func(to *rules.Cluster, value any) { add(to.Contents(), value.(T)) }
}

func decodeMigrated(kind string) func([]byte) (any, error) {
	return optional(func(raw []byte) (*olm.Migrated, error) { return olm.DecodeMigrated(kind, raw) })
}

// decodeCatalog decodes a CatalogSource, to which every namespace may refer. One that does not decode is not known to
// rules.
func decodeCatalog(raw []byte) (any, error) {
	c, err := olm.Decode[olm.CatalogSource](raw)
	if err != nil {
		return nil, err
	}
	c.Metadata = olm.ObjectMeta{Namespace: c.Metadata.Namespace, Name: c.Metadata.Name, UID: c.Metadata.UID}
	return c, nil
}

// notUpgradeable is why a ClusterServiceVersion must not be replaced now.
type notUpgradeable struct{ csv, why string }

// decodeOperatorCondition retains nothing of an operator that may be replaced.
func decodeOperatorCondition(raw []byte) (*notUpgradeable, error) {
	c, err := olm.DecodeOperatorCondition(raw)
	if err != nil || olm.NotUpgradeable(c) == "" {
		return nil, err
	}
	return &notUpgradeable{c.Name, olm.NotUpgradeable(c)}, nil
}

// salvageOperatorCondition retains one that does not decode as that of an operator that must not be replaced.
func salvageOperatorCondition(m *metav1.ObjectMeta, _ []byte, _ error) any {
	return &notUpgradeable{m.Name, "it cannot be read"}
}

func addOperatorCondition(to *rules.Cluster, value any) {
	c, n := value.(*notUpgradeable), to.Contents()
	if n.NotUpgradeable == nil {
		n.NotUpgradeable = map[string]string{}
	}
	n.NotUpgradeable[c.csv] = c.why
}
