package bench

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/admission"
)

// Size is a review that is measured.
type Size struct {
	// Name is what the table calls it.
	Name string
	// What says what is written.
	What string

	bytes   int     // about, of each side
	reviews int     // one after another, in a turn
	timed   int     // at the rate, in a turn
	rate    float64 // a second: a fraction of what the slowest floor can answer
	path    string  // of Opgate's endpoint

	allowed, denied []byte // bodies of a review that is allowed, and of one that is not
}

var sizes = []*Size{
	{Name: "S", What: "Subscription of 4 KiB, created", bytes: 4 << 10, reviews: 2_000, timed: 400, rate: 200, path: admission.PathValidateSubscriptions},
	{Name: "M", What: "approval of a plan of 42 KiB a side", bytes: 42 << 10, reviews: 300, timed: 200, rate: 100, path: admission.PathValidateInstallPlans},
	{Name: "L", What: "approval of a plan of 1.2 MiB a side", bytes: 1229 << 10, reviews: 40, timed: 12, rate: 4, path: admission.PathValidateInstallPlans},
}

// SizeNames are the names of all sizes.
func SizeNames() []string {
	var names []string
	for _, s := range sizes {
		names = append(names, s.Name)
	}
	return names
}

// sizeNamed returns a copy of a size, nil if there is none of that name.
func sizeNamed(name string) *Size {
	i := slices.IndexFunc(sizes, func(s *Size) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	s := *sizes[i]
	return &s
}

const (
	allowedVersion, deniedVersion = "etcdoperator.v0.9.2", "etcdoperator.v0.9.4"
)

// build makes the bodies.
func (s *Size) build() (err error) {
	if s.allowed, err = s.review(allowedVersion); err != nil {
		return err
	}
	s.denied, err = s.review(deniedVersion)
	return err
}

// review is the body of a review of a version, as the API server sends it.
func (s *Size) review(version string) ([]byte, error) {
	kind := "InstallPlan"
	if s.path == admission.PathValidateSubscriptions {
		kind = "Subscription"
	}
	object, err := fixture(kind)
	if err != nil {
		return nil, err
	}
	if kind == "Subscription" {
		object.Object["spec"].(map[string]any)["startingCSV"] = version
		return s.envelope(object, nil)
	}
	object.Object["spec"].(map[string]any)["clusterServiceVersionNames"] = []any{version}
	status := object.Object["status"].(map[string]any)
	lookup := status["bundleLookups"].([]any)[0].(map[string]any)
	lookup["identifier"] = version
	lookup["properties"] = strings.Replace(lookup["properties"].(string), "0.9.2", strings.TrimPrefix(version, "etcdoperator.v"), 1)
	if status["plan"], err = steps(version, s.bytes-2<<10); err != nil { // the rest of a plan takes 2 KiB
		return nil, err
	}
	approved := object.DeepCopy()
	approved.Object["spec"].(map[string]any)["approved"] = true
	return s.envelope(approved, object)
}

// steps are the steps of a plan, of about a size as JSON: a ClusterServiceVersion and CustomResourceDefinitions.
func steps(version string, size int) ([]any, error) {
	csv, err := text(map[string]any{"apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
		"metadata": map[string]any{"name": version}, "spec": map[string]any{"version": strings.TrimPrefix(version, "etcdoperator.v"),
			"description": strings.Repeat("Creates and maintains etcd clusters. ", 100)}})
	if err != nil {
		return nil, err
	}
	step := func(i int, kind, manifest string) any {
		return map[string]any{"resolving": version, "status": "Unknown", "resource": map[string]any{
			"group": "apiextensions.k8s.io", "version": "v1", "kind": kind, "name": fmt.Sprintf("kind-%d.etcd.database.coreos.com", i),
			"sourceName": "operatorhubio-catalog", "sourceNamespace": "olm", "manifest": manifest}}
	}
	csvStep := step(0, "ClusterServiceVersion", csv)
	resource := csvStep.(map[string]any)["resource"].(map[string]any)
	resource["group"], resource["version"], resource["name"] = "operators.coreos.com", "v1alpha1", version
	all := []any{csvStep}
	for i := 1; ; i++ {
		data, err := json.Marshal(all)
		if err != nil || len(data) >= size {
			return all, err
		}
		manifest, err := definition(i, min(48<<10, size-len(data)))
		if err != nil {
			return nil, err
		}
		all = append(all, step(i, "CustomResourceDefinition", manifest))
	}
}

// definition is the manifest of a CustomResourceDefinition, whose schema is long enough that it takes about a size where it stands
// in a plan: there its quotes are escaped.
func definition(i, size int) (string, error) {
	property := map[string]any{"type": "string", "description": "Human-readable message that says what was observed, and when it changed last."}
	quoted, err := json.Marshal(property)
	if err != nil {
		return "", err
	}
	properties := map[string]any{}
	for p := range max(1, size/(len(quoted)+40)) {
		properties[fmt.Sprintf("property%d", p)] = property
	}
	name := fmt.Sprintf("kind-%d", i)
	return text(map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": name + ".etcd.database.coreos.com"},
		"spec": map[string]any{"group": "etcd.database.coreos.com", "scope": "Namespaced", "names": map[string]any{"kind": name, "plural": name},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": map[string]any{
				"type": "object", "properties": properties}}}}}})
}

func text(v any) (string, error) {
	data, err := json.Marshal(v)
	return string(data), err
}

// envelope is the review of a creation, or of an update if there is an old object, by a user. An object that is smaller than the size gets
// managed fields up to that.
func (s *Size) envelope(object, old *unstructured.Unstructured) ([]byte, error) {
	data, err := manage(object, s.bytes)
	if err != nil {
		return nil, err
	}
	kind := metav1.GroupVersionKind(object.GroupVersionKind())
	resource := metav1.GroupVersionResource{Group: kind.Group, Version: kind.Version, Resource: strings.ToLower(kind.Kind) + "s"}
	no := false
	request := &admissionv1.AdmissionRequest{
		UID: "705ab4f5-6393-11e8-b7cc-42010a800002", Kind: kind, RequestKind: &kind, Resource: resource, RequestResource: &resource,
		Name: object.GetName(), Namespace: object.GetNamespace(), Operation: admissionv1.Create, DryRun: &no,
		UserInfo: authenticationv1.UserInfo{Username: "admin", UID: "014fbff9a07c", Groups: []string{"system:masters", "system:authenticated"}},
		Object:   runtime.RawExtension{Raw: data},
		Options:  runtime.RawExtension{Raw: []byte(`{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1","fieldManager":"kubectl-create"}`)},
	}
	if old != nil {
		request.Operation = admissionv1.Update
		request.Options.Raw = []byte(`{"kind":"UpdateOptions","apiVersion":"meta.k8s.io/v1","fieldManager":"kubectl-edit"}`)
		if request.OldObject.Raw, err = manage(old, s.bytes); err != nil {
			return nil, err
		}
	}
	return json.Marshal(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: request})
}

// manage returns an object as JSON with managed fields, as many as fit into a size.
func manage(u *unstructured.Unstructured, size int) ([]byte, error) {
	data, err := json.Marshal(u.Object)
	if err != nil {
		return nil, err
	}
	const field = `"f:label1000":{"f:value":{}}`
	fields := map[string]any{}
	for i := range max(1, (size-len(data)-200)/len(field)) { // what is around the fields takes 200 bytes
		fields[fmt.Sprintf("f:label%d", 1000+i)] = map[string]any{"f:value": map[string]any{}}
	}
	raw, err := json.Marshal(map[string]any{"f:metadata": map[string]any{"f:labels": fields}})
	if err != nil {
		return nil, err
	}
	var managed metav1.FieldsV1
	managed.SetRawBytes(raw)
	u.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "kubectl-create", Operation: metav1.ManagedFieldsOperationUpdate,
		APIVersion: u.GetAPIVersion(), FieldsType: "FieldsV1", FieldsV1: &managed}})
	return json.Marshal(u.Object)
}

//go:embed testdata/objects.yaml
var fixtures []byte

// fixture returns the object of a kind in testdata.
func fixture(kind string) (*unstructured.Unstructured, error) {
	for _, document := range bytes.Split(fixtures, []byte("\n---\n")) {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &u.Object); err != nil {
			return nil, err
		}
		if u.GetKind() == kind {
			return u, nil
		}
	}
	return nil, fmt.Errorf("there is no %s in testdata/objects.yaml", kind)
}
