package manifests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	apifield "k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"github.com/opgate/opgate/snapshot"
)

// Object is one object of the input.
type Object struct {
	Place
	Group, Kind, Namespace, Name string
	// Value is what is judged, or a *catalog.Package; nil for context. It is one of
	//
	//   *policyv1beta2.OperatorPolicy, *constraintv1.Constraint, *policyv1.Policy, *policyv1beta1.PolicySet,
	//   *olm.Subscription, *olm.InstallPlan, *olm.CatalogSource, *olm.OperatorGroup
	Value any
	// Strict are the unknown fields of an object of a kind of Opgate's.
	Strict []error
	// Refused is what the schema of the kind does not admit.
	Refused apifield.ErrorList
	// Hub is set if it has hub templates, which nothing has resolved.
	Hub bool
	// Unstated is set if nothing states the namespace, so that it is "default".
	Unstated bool

	tree *tree
	// raw is the JSON that would be stored, stored what the gate keeps of it; nil for a kind that it does not keep, and
	// for a second object of one name.
	raw    []byte
	stored *snapshot.Object
	// cluster is set for an object that belongs to no namespace.
	cluster bool
	// identified is set once the names have been read.
	identified   bool
	generateName string
	// labels are those of a Namespace; nil for everything else.
	labels map[string]string
}

// identity is what there is one of on a cluster.
type identity struct{ kind, namespace, name string }

func (o *Object) identity() identity { return identity{o.Kind, o.Namespace, o.Name} }

// equal reports whether two objects of one name are the same.
func (o *Object) equal(other *Object) bool {
	return o.labels != nil && maps.Equal(o.labels, other.labels) || bytes.Equal(o.raw, other.raw)
}

// Key names the object among those of its kind.
func (o *Object) Key() string {
	if o.Namespace == "" {
		return o.Name
	}
	return o.Namespace + "/" + o.Name
}

// LineOf returns the line of a field in the file.
func (o *Object) LineOf(field string) int {
	if field == "" || o.tree == nil {
		return o.Line
	}
	return o.tree.line(field, o.Line)
}

// JSON is what would be stored.
func (o *Object) JSON() []byte { return o.raw }

// named returns the JSON of an object with a namespace, if it has one, and a name.
func named(raw []byte, namespace, name string) ([]byte, error) {
	u := &unstructured.Unstructured{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &u.Object); err != nil {
		return nil, err
	}
	u.SetNamespace(namespace)
	u.SetName(name)
	return json.Marshal(u.Object)
}

// nameFaults returns what is wrong with the name and the namespace; the API server accepts no other.
func nameFaults(o *Object, namespace string) (faults []fieldFault) {
	add := func(path, value string, problems []string) {
		for _, p := range problems {
			p, _, _ = strings.Cut(p, " (e.g.") // the pattern does not help the user
			faults = append(faults, fieldFault{path: path, text: fmt.Sprintf("%s %q: %s", path, value, p)})
		}
	}
	switch {
	case o.Name != "":
		add("metadata.name", o.Name, validation.NameIsDNSSubdomain(o.Name, false))
	case o.generateName != "":
		add("metadata.generateName", o.generateName, validation.NameIsDNSSubdomain(o.generateName, true))
	default:
		faults = append(faults, fieldFault{path: "metadata.name", text: "metadata.name is missing", absent: true})
	}
	switch {
	case !o.cluster:
		add("metadata.namespace", namespace, utilvalidation.IsDNS1123Label(namespace))
	case o.Namespace != "":
		add("metadata.namespace", o.Namespace, []string{"a " + o.Kind + " belongs to no namespace; remove it"})
	}
	return faults
}
