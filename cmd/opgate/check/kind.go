package check

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	constraintv2 "github.com/opgate/opgate/api/constraint/v2"
	policyv1beta1 "github.com/opgate/opgate/api/policy/v1beta1"
	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/conversion"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/snapshot"
)

// kind is one kind of objects that is read; all others are ignored.
type kind struct {
	schema.GroupVersionKind
	// kept is the kind of the store that its objects are kept as; nil for one that the store does not hold.
	kept *snapshot.Kind
	// read decodes an object and fills in what it is.
	read func(raw []byte, o *object) []fieldFault
	// unchecked is set for context of which the fields are not checked.
	unchecked bool
}

// kinds are those that every replica of the gate watches, and the versions that are converted to theirs.
var kinds = withContext(
	kind{policyv1beta2.GroupVersion.WithKind(policyv1beta2.Kind), snapshot.OperatorPolicies, readOperatorPolicy, false},
	kind{policyv1beta1.GroupVersion.WithKind(policyv1beta2.Kind), snapshot.OperatorPolicies, readEarlierPolicy, false},
	kind{constraintv1.GroupVersion.WithKind(constraintv1.Kind), snapshot.Constraints, readConstraint, false},
	kind{constraintv2.GroupVersion.WithKind(constraintv1.Kind), snapshot.Constraints, readConstraint, false},
	kind{snapshot.Policies.GroupVersionKind, snapshot.Policies, readPolicy, false},
	kind{snapshot.PolicySets.GroupVersionKind, snapshot.PolicySets, readPolicySet, false},
	kind{olm.SubscriptionGVK, snapshot.Subscriptions, readSubscription, false},
	kind{olm.InstallPlanGVK, snapshot.InstallPlans, readPlan, false},
	kind{olm.CatalogSourceGVK, snapshot.CatalogSources, readCatalogSource, false},
	kind{olm.OperatorGroupGVK, snapshot.OperatorGroups, readOperatorGroup, false},
	kind{olm.V1.WithKind(olm.KindOperatorCondition), snapshot.OperatorConditions, readMetadata, true},
	kind{snapshot.Namespaces.GroupVersionKind, snapshot.Namespaces, readNamespace, true},
	kind{olm.PackageManifests.GroupVersion().WithKind(olm.KindPackageManifest), nil, readPackage, true},
)

// withContext adds the other kinds that every replica judges by, as context that is read as the store reads it.
func withContext(kinds ...kind) []kind {
	for _, k := range snapshot.Kinds() {
		read := slices.ContainsFunc(kinds, func(other kind) bool { return other.GroupVersionKind == k.GroupVersionKind })
		if !read && !k.Own && (k.Readers == snapshot.EveryReplica || k.Readers == snapshot.Facts) {
			kinds = append(kinds, kind{k.GroupVersionKind, k, readMetadata, true})
		}
	}
	return kinds
}

// The fields in spec that OLM's schemas require. Without a package a Subscription would be governed by
// nothing and pass.
var (
	subscriptionRequires = []string{"name", "source", "sourceNamespace"}
	planRequires         = []string{"approval", "approved", "clusterServiceVersionNames"}
)

// kindOf returns the kind to read an object as, or nil for one that is ignored.
func kindOf(apiVersion, name string) (*kind, error) {
	if notASCII(apiVersion) || notASCII(name) {
		return nil, fmt.Errorf("apiVersion %+q and kind %+q must be ASCII; type them instead of copying them", apiVersion, name)
	}
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return nil, fmt.Errorf("apiVersion %q must be a group and a version, as in apps/v1", apiVersion)
	}
	var unread error
	for i := range kinds {
		k := &kinds[i]
		switch {
		case !alike(name, k.Kind):
		case gv.Group == "" && alike(gv.Version, k.Group):
			return nil, fmt.Errorf("apiVersion %q has no version; it is written %s", apiVersion, k.GroupVersion())
		case !alike(gv.Group, k.Group):
		case gv.Group != k.Group || name != k.Kind:
			return nil, fmt.Errorf("kind %q of apiVersion %q does not exist; it is written kind %s, apiVersion %s", name, apiVersion, k.Kind, k.GroupVersion())
		case gv.Version != k.Version:
			if unread == nil { // the newest version comes first
				unread = fmt.Errorf("%s of apiVersion %q is not read; the version that is read is %s", k.Kind, apiVersion, k.GroupVersion())
			}
		default:
			return k, nil
		}
	}
	return nil, unread
}

// knownGroups are the API groups whose objects decide over operators. What is not judged of them is named.
var knownGroups = []string{policyv1beta2.GroupVersion.Group, olm.V1.Group, "packages.operators.coreos.com", "olm.operatorframework.io",
	"kustomize.config.k8s.io"}

func isKnown(group string) bool { return slices.Contains(knownGroups, group) }

func groupOf(apiVersion string) string {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return ""
	}
	return gv.Group
}

// nameOf returns the name of any object.
func nameOf(raw []byte) string {
	var object struct {
		Metadata olm.ObjectMeta `json:"metadata"`
	}
	if kjson.UnmarshalCaseSensitivePreserveInts(raw, &object) != nil {
		return ""
	}
	return object.Metadata.Name
}

func notASCII(s string) bool { return strings.ContainsFunc(s, func(r rune) bool { return r > '~' }) }

func alike(a, b string) bool { return strings.EqualFold(strings.TrimSpace(a), b) }

func readOperatorPolicy(raw []byte, o *object) []fieldFault {
	policy, strict, err := rules.DecodeOperatorPolicy(raw)
	if err != nil {
		return []fieldFault{wrongType(raw, policy, err)}
	}
	o.operatorPolicy, o.strict = policy, strict
	o.identify(&olm.ObjectMeta{Name: policy.Name, GenerateName: policy.GenerateName, Namespace: policy.Namespace})
	return nil
}

// readEarlierPolicy reads a policy in v1beta1, as the conversion webhook would hand it to the gate.
func readEarlierPolicy(raw []byte, o *object) []fieldFault {
	var earlier policyv1beta1.OperatorPolicy
	strict, err := kjson.UnmarshalStrict(raw, &earlier)
	if err != nil {
		return []fieldFault{wrongType(raw, &earlier, err)}
	}
	var content map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &content); err != nil {
		return []fieldFault{wrongType(raw, &earlier, err)}
	}
	content = conversion.ToV1beta2(content)
	content["apiVersion"] = policyv1beta2.GroupVersion.String()
	converted, err := json.Marshal(content)
	if err != nil {
		return []fieldFault{{"", "it cannot be converted: " + err.Error()}}
	}
	if faults := readOperatorPolicy(converted, o); len(faults) > 0 {
		return faults
	}
	o.raw, o.strict = converted, rules.SpecFaults(strict) // the faults are those of the document as it was written
	return nil
}

func readSubscription(raw []byte, o *object) []fieldFault {
	faults := append(unknownFields(raw, &operatorsv1alpha1.Subscription{}), missing(raw, subscriptionRequires)...)
	s, err := olm.DecodeSubscription(raw)
	if err != nil {
		return orFault(faults, err)
	}
	o.subscription = s
	o.identify(&s.Metadata)
	return faults
}

func readPlan(raw []byte, o *object) []fieldFault {
	faults := append(unknownFields(raw, &operatorsv1alpha1.InstallPlan{}), missing(raw, planRequires)...)
	p, err := olm.DecodePlan(raw)
	if err != nil {
		return orFault(faults, err)
	}
	rules.PreparePlan(p)
	o.plan = p
	o.identify(&p.Metadata)
	return faults
}

// readPackage reads what a catalog says of a package. It does not identify the object: a package in several catalogs is several objects of
// one name.
func readPackage(raw []byte, o *object) []fieldFault {
	var content map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &content); err != nil {
		return []fieldFault{wrongType(raw, &content, err)}
	}
	o.pkg = catalog.Decode(content)
	return nil
}

// readMetadata reads an object that is context alone.
func readMetadata(raw []byte, o *object) []fieldFault {
	var object struct {
		Metadata olm.ObjectMeta `json:"metadata"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &object); err != nil {
		return []fieldFault{wrongType(raw, &object, err)}
	}
	o.identify(&object.Metadata)
	return nil
}

// orFault adds a fault to an object that does not decode if it has none.
func orFault(faults []fieldFault, err error) []fieldFault {
	if len(faults) > 0 {
		return faults
	}
	return []fieldFault{{"", "it cannot be read: " + reworded(err)}}
}

// head are the fields that name the kind of an object, and the elements of a list.
type head struct {
	apiVersion, kind string
	// list is set where the object has elements.
	list  bool
	items []json.RawMessage
	// isForeign is set where there is neither apiVersion nor kind: values of a chart, a workflow, a package.json.
	isForeign bool
}

// headOf reads the head of an object.
func headOf(raw []byte) (h head, faults []fieldFault) {
	var fields map[string]json.RawMessage
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &fields); err != nil {
		h.isForeign = true
		return h, []fieldFault{{"", "it is " + shapeOf(raw) + ", not an object"}}
	}
	_, hasVersion := fields["apiVersion"]
	_, hasKind := fields["kind"]
	h.isForeign = !hasVersion && !hasKind
	text := func(name string) (s string) {
		value, ok := fields[name]
		if ok && json.Unmarshal(value, &s) != nil {
			faults = append(faults, fieldFault{name, name + " is " + shapeOf(value) + ", it must be a string"})
		}
		return s
	}
	h.apiVersion, h.kind = text("apiVersion"), text("kind")
	if items, ok := fields["items"]; ok {
		h.list = json.Unmarshal(items, &h.items) == nil
		if !h.list && h.isGenericList() {
			faults = append(faults, fieldFault{"items", "items is " + shapeOf(items) + ", it must be a list"})
		}
	}
	return h, faults
}

// isGenericList reports whether it is the list that holds objects of any kind.
func (h *head) isGenericList() bool { return h.apiVersion == "v1" && h.kind == "List" }

// shapeOf names what a JSON value is.
func shapeOf(raw []byte) string {
	if len(raw) == 0 {
		return "nothing"
	}
	switch raw[0] {
	case '{':
		return "a mapping"
	case '[':
		return "a list"
	case '"':
		return "a string"
	case 't', 'f':
		return "true or false"
	case 'n':
		return "null"
	}
	return "a number"
}
