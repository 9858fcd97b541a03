package manifests

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	operatorsv1 "github.com/operator-framework/api/pkg/operators/v1"
	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	constraintv2 "github.com/opgate/opgate/api/constraint/v2"
	policyv1 "github.com/opgate/opgate/api/policy/v1"
	policyv1beta1 "github.com/opgate/opgate/api/policy/v1beta1"
	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/conversion"
	"github.com/opgate/opgate/internal/apijson"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/carrier"
	"github.com/opgate/opgate/snapshot"
)

// kind is one kind of objects that is read; all others are ignored.
type kind struct {
	schema.GroupVersionKind
	// kept is the kind of the store that its objects are kept as; nil for one that the store does not hold.
	kept *snapshot.Kind
	// read decodes an object and fills in what it is.
	read func(raw []byte, o *Object) []fieldFault
	// unchecked is set for context of which the fields are not checked.
	unchecked bool
}

// clusterScoped reports whether the objects of the kind have no namespace: none of OLM v1 has.
func (k *kind) clusterScoped() bool {
	return k.kept != nil && k.kept.ClusterScoped || k.Group == olm.ExtensionsV1.Group
}

// ours reports whether Opgate defines the kind, or reads it with its own templates.
func (k *kind) ours() bool {
	return k.Group == policyv1beta2.GroupVersion.Group || k.Kind == constraintv1.Kind
}

// judges reports whether other objects are judged by an object of the kind.
func (k *kind) judges(raw []byte) bool {
	switch k.kept {
	case nil:
		return k.Kind == olm.KindPackageManifest
	case snapshot.Policies: // one that may have a template by which others are judged
		return found(words{policyv1beta2.Kind, constraintv1.Kind}, raw)
	case snapshot.OperatorPolicies, snapshot.Constraints, snapshot.Namespaces, snapshot.CatalogSources:
		return true
	}
	return false
}

// kinds are those that every replica of the gate watches, and the versions that are converted to theirs.
var kinds = withContext(
	kind{policyv1beta2.GroupVersion.WithKind(policyv1beta2.Kind), snapshot.OperatorPolicies, readOperatorPolicy, false},
	kind{policyv1beta1.GroupVersion.WithKind(policyv1beta2.Kind), snapshot.OperatorPolicies, readEarlierPolicy, false},
	kind{constraintv1.GroupVersion.WithKind(constraintv1.Kind), snapshot.Constraints, readConstraint, false},
	kind{constraintv2.GroupVersion.WithKind(constraintv1.Kind), snapshot.Constraints, readConstraint, false},
	kind{snapshot.Policies.GroupVersionKind, snapshot.Policies, keepsUnknown[policyv1.Policy]("policy-templates"), false},
	kind{snapshot.PolicySets.GroupVersionKind, snapshot.PolicySets, keepsUnknown[policyv1beta1.PolicySet](), false},
	kind{olm.SubscriptionGVK, snapshot.Subscriptions, reads(unknownFields[operatorsv1alpha1.Subscription],
		olm.Decode[olm.Subscription], "name", "source", "sourceNamespace"), false},
	kind{olm.InstallPlanGVK, snapshot.InstallPlans, reads(unknownFields[operatorsv1alpha1.InstallPlan],
		preparedPlan, "approval", "approved", "clusterServiceVersionNames"), false},
	kind{olm.CatalogSourceGVK, snapshot.CatalogSources, reads(unknownFields[operatorsv1alpha1.CatalogSource],
		as[olm.CatalogSource], "sourceType"), false},
	kind{olm.OperatorGroupGVK, snapshot.OperatorGroups, readOperatorGroup, false},
	kind{earlierGroup, snapshot.OperatorGroups, readOperatorGroup, false},
	kind{olm.ClusterExtensionGVK, nil, reads(nil, olm.Decode[olm.ClusterExtension], "namespace", "source"), false},
	kind{olm.ClusterCatalogGVK, nil, reads(nil, olm.Decode[olm.ClusterCatalog], "source"), false},
	kind{olm.V1.WithKind(olm.KindOperatorCondition), snapshot.OperatorConditions, readMetadata, true},
	kind{snapshot.Namespaces.GroupVersionKind, snapshot.Namespaces, readNamespace, true},
	kind{olm.PackageManifests.GroupVersion().WithKind(olm.KindPackageManifest), nil, readPackage, true},
)

// earlierGroup is a version of OperatorGroups with the same fields, which OLM serves.
var earlierGroup = schema.GroupVersionKind{Group: olm.OperatorGroupGVK.Group, Version: "v1alpha2",
	Kind: olm.OperatorGroupGVK.Kind}

var readOperatorGroup = reads(unknownFields[operatorsv1.OperatorGroup], as[olm.OperatorGroup])

// withContext adds the other kinds that every replica judges by, as context that is read as the store reads it.
func withContext(kinds ...kind) []kind {
	for _, k := range snapshot.Kinds() {
		read := slices.ContainsFunc(kinds,
			func(other kind) bool { return other.GroupVersionKind == k.GroupVersionKind })
		if !read && !k.Own && (k.Readers == snapshot.EveryReplica || k.Readers == snapshot.Facts) {
			kinds = append(kinds, kind{k.GroupVersionKind, k, readMetadata, true})
		}
	}
	return kinds
}

// kindOf returns the kind to read an object as, or nil for one that is ignored.
func kindOf(apiVersion, name string) (*kind, error) {
	if notASCII(apiVersion) || notASCII(name) {
		return nil, fmt.Errorf("apiVersion %+q and kind %+q must be ASCII; type them instead of copying them",
			apiVersion, name)
	}
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return nil, fmt.Errorf("apiVersion %q must be a group and a version, as in apps/v1", apiVersion)
	}
	group := cmp.Or(gv.Group, gv.Version) // the version may be missing
	var near *kind
	for i := range kinds {
		k := &kinds[i]
		switch {
		case k.GroupVersion() == gv && k.Kind == name:
			return k, nil
		case near == nil && isNear(name, k.Kind) && (isNear(group, k.Group) ||
			gv == schema.GroupVersion{Version: k.Version} && gv.Version != "v1"): // the group is missing
			near = k // the newest version comes first
		}
	}
	if near != nil {
		return nil, fmt.Errorf("kind %q of apiVersion %q is not read; write kind %s, apiVersion %s", name, apiVersion, near.Kind,
			near.GroupVersion())
	}
	return nil, nil
}

// isNear reports whether a name is another one but for case, blanks, and one letter.
func isNear(name, other string) bool {
	a, b := strings.ToLower(strings.TrimSpace(name)), strings.ToLower(other)
	for a != "" && b != "" && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	next := func(s string) string { return s[min(1, len(s)):] }
	return next(a) == b || a == next(b) || next(a) == next(b)
}

// knownGroups are the API groups whose objects decide over operators. What is not judged of them is named.
var knownGroups = []string{policyv1beta2.GroupVersion.Group, olm.V1.Group, "packages.operators.coreos.com",
	"olm.operatorframework.io",
	"kustomize.config.k8s.io"}

func isKnown(group string) bool { return slices.Contains(knownGroups, group) }

func groupOf(apiVersion string) string {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return ""
	}
	return gv.Group
}

// Decode returns an object that a cluster stores, of a kind that is judged. It does not look for what its manifest
// would be refused for.
func Decode(stored schema.GroupVersionKind, raw []byte) (*Object, error) {
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.GroupVersionKind == stored })
	o := &Object{Kind: stored.Kind, raw: raw}
	if faults := kinds[i].read(raw, o); !o.identified {
		return nil, errors.New(faults[0].text)
	}
	return o, nil
}

// nameOf returns the name of any object.
func nameOf(raw []byte) string {
	var o Object
	readMetadata(raw, &o)
	return o.Name
}

func notASCII(s string) bool { return strings.ContainsFunc(s, func(r rune) bool { return r > '~' }) }

func readOperatorPolicy(raw []byte, o *Object) []fieldFault {
	policy, strict, err := rules.DecodeOperatorPolicy(raw)
	if err != nil {
		return undecodable(raw, err)
	}
	o.Value, o.Strict = policy, strict
	return readMetadata(raw, o)
}

// readEarlierPolicy reads a policy in v1beta1, as the conversion webhook would hand it to the gate.
func readEarlierPolicy(raw []byte, o *Object) []fieldFault {
	var earlier policyv1beta1.OperatorPolicy
	strict, err := kjson.UnmarshalStrict(raw, &earlier)
	if err != nil {
		return undecodable(raw, err)
	}
	var content map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &content); err != nil {
		return undecodable(raw, err)
	}
	content = conversion.ToV1beta2(content)
	content["apiVersion"] = policyv1beta2.GroupVersion.String()
	converted, err := json.Marshal(content)
	if err != nil {
		return []fieldFault{{text: "it cannot be converted: " + err.Error()}}
	}
	if faults := readOperatorPolicy(converted, o); len(faults) > 0 {
		return faults
	}
	written := rules.SpecFaults(strict)
	for _, fault := range o.Strict { // of what conversion adds
		if !slices.ContainsFunc(written, func(f error) bool { return f.Error() == fault.Error() }) {
			written = append(written, fault)
		}
	}
	o.raw, o.Strict = converted, written
	return nil
}

// reads returns the reader of a kind. It finds the fields that are unknown, by a function, and those that are missing in
// spec, which the schema requires: without a package a Subscription would be governed by nothing and pass. And it decodes
// what is judged. Fields of kinds of OLM v1 differ between its versions: for these unknown is nil.
func reads[T any](
	unknown func(raw []byte) []fieldFault, decode func(raw []byte) (*T, error), required ...string,
) func([]byte, *Object) []fieldFault {
	return func(raw []byte, o *Object) []fieldFault {
		var faults []fieldFault
		if unknown != nil {
			faults = unknown(raw)
		}
		if len(required) > 0 {
			faults = append(faults, missing(raw, required)...)
		}
		value, err := decode(raw)
		if err != nil {
			return orFault(faults, err)
		}
		o.Value = value
		return append(faults, readMetadata(raw, o)...)
	}
}

func as[T any](raw []byte) (*T, error) {
	value := new(T)
	return value, apijson.Unmarshal(raw, value)
}

func preparedPlan(raw []byte) (*olm.InstallPlan, error) {
	p, err := olm.DecodePlan(raw)
	if err == nil {
		carrier.PreparePlan(p)
	}
	return p, err
}

// readConstraint reads either version: their schemas are one.
func readConstraint(raw []byte, o *Object) []fieldFault {
	c, strict, err := rules.DecodeConstraint(raw)
	if err != nil {
		return undecodable(raw, err)
	}
	o.Value, o.Strict = c, strict
	return append(missing(raw, nil), readMetadata(raw, o)...)
}

// readNamespace reads a Namespace. It is context, not judged, so its fields are not checked.
func readNamespace(raw []byte, o *Object) []fieldFault {
	var n metav1.PartialObjectMetadata
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &n); err != nil {
		return orFault(nil, err)
	}
	metav1.SetMetaDataLabel(&n.ObjectMeta, corev1.LabelMetadataName, n.Name) // as every API server does
	o.labels = n.Labels
	var err error
	if o.raw, err = json.Marshal(&n); err != nil {
		return orFault(nil, err)
	}
	return readMetadata(raw, o)
}

// readPackage reads what a catalog says of a package. It does not identify the object: a package in several catalogs is
// several objects of one name.
func readPackage(raw []byte, o *Object) []fieldFault {
	var content map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &content); err != nil {
		return orFault(nil, err)
	}
	o.Value = catalog.Decode(content)
	return nil
}

// readMetadata reads the names of an object.
func readMetadata(raw []byte, o *Object) []fieldFault {
	var object struct {
		Metadata olm.ObjectMeta `json:"metadata"`
	}
	if err := apijson.Unmarshal(raw, &object); err != nil {
		return orFault(nil, err)
	}
	m := &object.Metadata
	o.Name, o.generateName, o.Namespace, o.identified = m.Name, m.GenerateName, m.Namespace, true
	return nil
}

// orFault adds a fault to an object that does not decode if it has none.
func orFault(faults []fieldFault, err error) []fieldFault {
	if len(faults) > 0 {
		return faults
	}
	fault := fieldFault{text: "it cannot be read: " + reworded(err)}
	if mismatch, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		fault = fieldFault{path: mismatch.Field, text: mismatch.Field + " must be of type " + mismatch.Type.Kind().String() +
			", not " + mismatch.Value}
	} else if field, ok := errors.AsType[*apijson.FieldError](err); ok {
		fault.path = field.Field
	}
	return []fieldFault{fault}
}

// head are the fields that name the kind of an object, and the elements of a list.
type head struct {
	apiVersion, kind string
	// list is set where the object has elements.
	list  bool
	items []json.RawMessage
	// isForeign is set for what is no object: values of a chart, a workflow, a package.json, the index of a Helm repository.
	isForeign bool
}

// headOf reads the head of an object.
func headOf(raw []byte) (h head, faults []fieldFault) {
	var fields map[string]json.RawMessage
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &fields); err != nil {
		h.isForeign = true
		return h, []fieldFault{{text: "it is not an object"}}
	}
	_, hasVersion := fields["apiVersion"]
	_, hasKind := fields["kind"]
	_, isIndex := fields["entries"]
	h.isForeign = !hasKind && (!hasVersion || isIndex)
	text := func(name string) (s string) {
		value, ok := fields[name]
		if ok && json.Unmarshal(value, &s) != nil {
			faults = append(faults, fieldFault{path: name, text: name + " must be a string"})
		}
		return s
	}
	h.apiVersion, h.kind = text("apiVersion"), text("kind")
	if items, ok := fields["items"]; ok {
		h.list = json.Unmarshal(items, &h.items) == nil
		if !h.list && h.isGenericList() {
			faults = append(faults, fieldFault{path: "items", text: "items must be a list"})
		}
	}
	return h, faults
}

// isGenericList reports whether it is the list that holds objects of any kind.
func (h *head) isGenericList() bool { return h.apiVersion == "v1" && h.kind == "List" }
