package bench

import (
	"bytes"
	"context"
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
	// What states what is written.
	What string

	reviews int     // one after another, in a turn
	timed   int     // at the rate, in a turn
	rate    float64 // a second: a fraction of what the slowest floor can answer
	path    string  // of Opgate's endpoint

	allowed, denied []byte // bodies of a review that is allowed, and of one that is not
}

// Sizes that differ from S and L in what they hold, and the namespace of the former, whose policy states no config.
const bare, escaped, bareNamespace = "S-bare", "L-escaped", "bare"

var sizes = []*Size{
	{Name: "S", What: "Subscription of 4 KiB, created", reviews: 2_000, timed: 400, rate: 200,
		path: admission.PathValidateSubscriptions},
	{Name: bare, What: "the same without config", reviews: 2_000, timed: 400, rate: 200,
		path: admission.PathValidateSubscriptions},
	{Name: "M", What: "approval of a plan of 42 KiB a side", reviews: 300, timed: 200, rate: 100,
		path: admission.PathValidateInstallPlans},
	{Name: "L", What: "approval of a plan of 1.1 MiB a side", reviews: 40, timed: 12, rate: 4,
		path: admission.PathValidateInstallPlans},
	{Name: escaped, What: "the same, with the escapes of plans in use", reviews: 40, timed: 12, rate: 4,
		path: admission.PathValidateInstallPlans},
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
	packagePrefix                 = "etcdoperator.v"
	allowedVersion, deniedVersion = packagePrefix + "0.9.2", packagePrefix + "0.9.4"
)

// build makes the bodies.
func (s *Size) build(ctx context.Context) (err error) {
	if s.allowed, err = s.review(ctx, allowedVersion); err != nil {
		return err
	}
	s.denied, err = s.review(ctx, deniedVersion)
	return err
}

// review is the body of a review of a version, as the API server sends it.
func (s *Size) review(ctx context.Context, version string) ([]byte, error) {
	kind := "InstallPlan"
	if s.path == admission.PathValidateSubscriptions {
		kind = "Subscription"
	}
	object, err := fixture(kind)
	if err != nil {
		return nil, err
	}
	if kind == "Subscription" {
		if s.Name == bare {
			unstructured.RemoveNestedField(object.Object, "spec", "config")
			object.SetNamespace(bareNamespace)
		}
		object.Object["spec"].(map[string]any)["startingCSV"] = version
		applied, err := json.Marshal(object.Object)
		if err != nil {
			return nil, err
		}
		object.SetAnnotations(map[string]string{"kubectl.kubernetes.io/last-applied-configuration": string(applied)})
		return envelope(object, nil)
	}
	object.Object["spec"].(map[string]any)["clusterServiceVersionNames"] = []any{version}
	status := object.Object["status"].(map[string]any)
	lookup := status["bundleLookups"].([]any)[0].(map[string]any)
	lookup["identifier"] = version
	lookup["properties"] = strings.Replace(lookup["properties"].(string), "0.9.2",
		strings.TrimPrefix(version, packagePrefix), 1)
	if status["plan"], err = steps(ctx, s.Name, version); err != nil {
		return nil, err
	}
	approved := object.DeepCopy()
	approved.Object["spec"].(map[string]any)["approved"] = true
	return envelope(approved, object)
}

// envelope is the review of a creation, or of an update if there is an old object, by a user.
func envelope(object, old *unstructured.Unstructured) ([]byte, error) {
	data, err := manage(object)
	if err != nil {
		return nil, err
	}
	kind := metav1.GroupVersionKind(object.GroupVersionKind())
	resource := metav1.GroupVersionResource{Group: kind.Group, Version: kind.Version,
		Resource: strings.ToLower(kind.Kind) + "s"}
	no := false
	request := &admissionv1.AdmissionRequest{
		UID: "705ab4f5-6393-11e8-b7cc-42010a800002", Kind: kind, RequestKind: &kind, Resource: resource,
		RequestResource: &resource,
		Name:            object.GetName(), Namespace: object.GetNamespace(), Operation: admissionv1.Create, DryRun: &no,
		UserInfo: authenticationv1.UserInfo{Username: "admin", UID: "014fbff9a07c",
			Groups: []string{"system:masters", "system:authenticated"}},
		Object: runtime.RawExtension{Raw: data},
		Options: runtime.RawExtension{Raw: []byte(
			`{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1","fieldManager":"kubectl-create"}`)},
	}
	if old != nil {
		request.Operation = admissionv1.Update
		request.Options.Raw = []byte(
			`{"kind":"UpdateOptions","apiVersion":"meta.k8s.io/v1","fieldManager":"kubectl-edit"}`)
		if request.OldObject.Raw, err = manage(old); err != nil {
			return nil, err
		}
	}
	return json.Marshal(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: request})
}

// manage returns an object as JSON, with managed fields as the API server writes them.
func manage(u *unstructured.Unstructured) ([]byte, error) {
	fields := map[string]any{}
	for _, name := range []string{"metadata", "spec", "status"} {
		if member, ok := u.Object[name].(map[string]any); ok {
			fields["f:"+name] = fieldsOf(member)
		}
	}
	raw, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	var managed metav1.FieldsV1
	managed.SetRawBytes(raw)
	u.SetManagedFields([]metav1.ManagedFieldsEntry{{
		Manager: "kubectl-client-side-apply", Operation: metav1.ManagedFieldsOperationUpdate,
		APIVersion: u.GetAPIVersion(), FieldsType: "FieldsV1", FieldsV1: &managed,
	}})
	return json.Marshal(u.Object)
}

// fieldsOf are the fields of an object, for managed fields. Lists are one field each.
func fieldsOf(object map[string]any) map[string]any {
	fields := map[string]any{".": map[string]any{}}
	for name, value := range object {
		member, _ := value.(map[string]any)
		if fields["f:"+name] = map[string]any{}; member != nil {
			fields["f:"+name] = fieldsOf(member)
		}
	}
	return fields
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
