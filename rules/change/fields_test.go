package change

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/operator-framework/api/pkg/lib/version"
	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/opgate/opgate/internal/cases"
)

// fill sets every field below a value.
func fill(v reflect.Value, depth int) {
	switch value := v.Addr().Interface().(type) {
	case *resource.Quantity:
		*value = resource.MustParse("1")
		return
	case *intstr.IntOrString:
		*value = intstr.FromInt32(1)
		return
	case *json.RawMessage:
		*value = json.RawMessage(`"x"`)
		return
	case *metav1.Time, *metav1.TypeMeta, *metav1.ObjectMeta, *version.OperatorVersion,
		*apiextensionsv1.CustomResourceValidation:
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.String:
		v.SetString("x")
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint8:
		v.SetUint(1)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), depth)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), depth)
	case reflect.Map:
		key, element := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, depth)
		fill(element, depth)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, element)
	case reflect.Struct:
		if depth == 0 {
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i), depth-1)
			}
		}
	default: // interfaces stay empty
	}
}

// filled returns an object of a kind with every field set.
func filled(t *testing.T, apiVersion, kind string, object any) json.RawMessage {
	t.Helper()
	if object == nil {
		object = &struct {
			Spec map[string]any `json:"spec"`
		}{map[string]any{"a": map[string]any{"b": "x"}, "list": []any{"x"}}}
	} else {
		fill(reflect.ValueOf(object).Elem(), 30)
	}
	var fields map[string]any
	if err := json.Unmarshal(encode(t, object), &fields); err != nil {
		t.Fatal(err)
	}
	fields["apiVersion"], fields["kind"] = apiVersion, kind
	fields["metadata"] = map[string]any{"name": "x", "labels": map[string]any{"a": "x"},
		"annotations": map[string]any{"a": "x"}, "finalizers": []any{"x"}}
	delete(fields, "status")
	return encode(t, fields)
}

// everyKind returns a bundle with one object of each kind that OLM lets bundles contain
// (pkg/lib/bundle/supported_resources.go of operator-registry and supportedresources.go of operator-lifecycle-manager),
// of the kinds with webhooks, and of one that is not known.
func everyKind(t *testing.T) []json.RawMessage {
	t.Helper()
	csv := &v1alpha1.ClusterServiceVersion{}
	fill(reflect.ValueOf(&csv.Spec).Elem(), 30)
	csv.APIVersion, csv.Kind, csv.Name = v1alpha1.ClusterServiceVersionAPIVersion, v1alpha1.ClusterServiceVersionKind,
		"a.v1"
	// harmless, and large
	csv.Spec.CustomResourceDefinitions, csv.Spec.Description = v1alpha1.CustomResourceDefinitions{}, ""
	csv.Labels, csv.Annotations = map[string]string{"a": "x"}, map[string]string{"a": "x"}
	pod := &csv.Spec.InstallStrategy.StrategySpec.DeploymentSpecs[0].Spec.Template.Spec
	pod.InitContainers = nil // a value that another container has is not new, and probes count as one
	container := &pod.Containers[0]
	container.ReadinessProbe, container.StartupProbe, container.Lifecycle.PreStop, container.Lifecycle.PostStart = nil,
		nil, nil, nil
	sources := pod.Volumes[0].Projected.Sources
	sources[0].Secret.Name, sources[0].ConfigMap.Name = "projected", "projected"
	csv.Spec.WebhookDefinitions[0].ConversionCRDs = nil
	csv.Spec.WebhookDefinitions = append(csv.Spec.WebhookDefinitions,
		v1alpha1.WebhookDescription{Type: v1alpha1.ConversionWebhook, ConversionCRDs: []string{"x"}})
	daemon := json.RawMessage(
		strings.Replace(string(filled(t, appsv1.SchemeGroupVersion.String(), "DaemonSet", &appsv1.DaemonSet{})),
			`"initContainers":`, `"otherContainers":`, 1))
	definition := &apiextensionsv1.CustomResourceDefinition{}
	rbac := rbacv1.SchemeGroupVersion.String()
	all := []json.RawMessage{
		encode(t, csv),
		filled(t, apiextensionsv1.SchemeGroupVersion.String(), "CustomResourceDefinition", definition),
		filled(t, "v1", "ConfigMap", &corev1.ConfigMap{}),
		filled(t, "v1", "Secret", &corev1.Secret{}),
		filled(t, "v1", "Service", &corev1.Service{}),
		filled(t, "v1", "ServiceAccount", &corev1.ServiceAccount{}),
		filled(t, rbac, "Role", &rbacv1.Role{}),
		filled(t, rbac, "RoleBinding", &rbacv1.RoleBinding{}),
		filled(t, rbac, "ClusterRole", &rbacv1.ClusterRole{}),
		filled(t, rbac, "ClusterRoleBinding", &rbacv1.ClusterRoleBinding{}),
		filled(t, "policy/v1", "PodDisruptionBudget", &policyv1.PodDisruptionBudget{}),
		filled(t, "scheduling.k8s.io/v1", "PriorityClass", &schedulingv1.PriorityClass{}),
		filled(t, "networking.k8s.io/v1", "NetworkPolicy", &networkingv1.NetworkPolicy{}),
		filled(t, "admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration",
			&admissionv1.MutatingWebhookConfiguration{}),
		filled(t, "admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration",
			&admissionv1.ValidatingWebhookConfiguration{}),
		daemon,
		filled(t, "monitoring.coreos.com/v1", "PrometheusRule", nil),
		filled(t, "monitoring.coreos.com/v1", "ServiceMonitor", nil),
		filled(t, "monitoring.coreos.com/v1", "PodMonitor", nil),
		filled(t, "autoscaling.k8s.io/v1", "VerticalPodAutoscaler", nil),
		filled(t, "example.com/v1", "Unknown", nil),
	}
	for _, kind := range []string{"ConsoleYAMLSample", "ConsoleQuickStart", "ConsoleCLIDownload", "ConsoleLink",
		"ConsolePlugin"} {
		all = append(all, filled(t, "console.openshift.io/v1", kind, nil))
	}
	values := strings.NewReplacer(`"image":"x"`, `"image":"q.io/x/y"`, `"failurePolicy":"x"`,
		`"failurePolicy":"Ignore"`, `"matchPolicy":"x"`, `"matchPolicy":"Exact"`,
		`"subjects":[{"apiGroup":"x","kind":"x"`, `"subjects":[{"apiGroup":"x","kind":"ServiceAccount"`)
	for i := range all {
		all[i] = json.RawMessage(values.Replace(string(all[i])))
	}
	return all
}

// leaf is a field of an object without fields of its own.
type leaf struct {
	keys []any // of maps and lists
	path string
}

// leavesOf returns all leaves below a value.
func leavesOf(value any, keys []any, path string) []leaf {
	var all []leaf
	switch v := value.(type) {
	case map[string]any:
		for _, key := range sortedKeys(v) {
			all = append(all, leavesOf(v[key], append(slices.Clone(keys), key), pathBelow(path, key))...)
		}
	case []any:
		for i := range v {
			all = append(all, leavesOf(v[i], append(slices.Clone(keys), i), path+"[]")...)
		}
	default:
		all = append(all, leaf{keys, path})
	}
	return all
}

// pathBelow returns the path of a field as the tables name it.
func pathBelow(path, key string) string {
	child := childOf(path, key)
	for _, root := range [][2]string{
		{"ClusterServiceVersion.spec", "csv"}, {"ClusterServiceVersion.metadata.annotations", annotationPath},
		{"ClusterServiceVersion.metadata.labels", labelPath},
		{"csv.install.spec.deployments[]", "deployment"}, {"deployment.spec.template", "pod"},
		{"csv.apiservicedefinitions.required[]", "csv.apiservicedefinitions.owned[]"},
		{"csv.webhookdefinitions[]", "webhook"},
		{"CustomResourceDefinition.", "crd."}, {"WebhookConfiguration.webhooks[]", "webhook"},
		{"apps/DaemonSet.spec.template", "pod"},
	} {
		if at := strings.Index(child, root[0]); at >= 0 {
			return root[1] + child[at+len(root[0]):]
		}
	}
	if at := strings.Index(child, ".metadata."); at >= 0 && !strings.HasPrefix(child, "pod.") &&
		!strings.HasPrefix(child, "crd.") {
		return child[at+1:]
	}
	return child
}

// isHarmless reports whether a path, or one that it is below, is in the written list.
func isHarmless(path string) bool {
	for known := range harmless {
		if path == known || strings.HasSuffix(known, "/") && strings.HasPrefix(path, known) ||
			strings.HasPrefix(path, known+".") || strings.HasPrefix(path, known+"[]") {
			return true
		}
	}
	return false
}

// edited returns a copy of an object with one leaf removed, or set to another value.
func edited(t *testing.T, object json.RawMessage, keys []any, remove bool) json.RawMessage {
	t.Helper()
	var root any
	if err := json.Unmarshal(object, &root); err != nil {
		t.Fatal(err)
	}
	parent := root
	for _, key := range keys[:len(keys)-1] {
		switch k := key.(type) {
		case string:
			parent = parent.(map[string]any)[k]
		case int:
			parent = parent.([]any)[k]
		}
	}
	switch k := keys[len(keys)-1].(type) {
	case string:
		if at := parent.(map[string]any); remove {
			delete(at, k)
		} else {
			at[k] = other(at[k])
		}
	case int:
		if at := parent.([]any); remove {
			at[k] = nil
		} else {
			at[k] = other(at[k])
		}
	}
	return encode(t, root)
}

// other returns another value of the same type.
func other(value any) any {
	switch v := value.(type) {
	case bool:
		return !v
	case float64:
		return v + 1
	case string:
		if n, err := strconv.Atoi(v); err == nil {
			return strconv.Itoa(n + 1)
		}
		return "z" + v
	}
	return "y"
}

// TestC5EveryFieldCounts changes and removes each field of each object of a bundle (threats O48, O50): either a class
// reports it, in the one direction or the other, and the digest is another one, or the field is in the list of harmless
// ones.
func TestC5EveryFieldCounts(t *testing.T) {
	type field struct {
		leaf
		base   *Contents
		bundle []json.RawMessage
	}
	var fields []field
	used := map[string]bool{}
	for i, manifest := range everyKind(t) {
		bundle := []json.RawMessage{manifest}
		if i > 0 {
			bundle = append(bundle, csvManifest("a.v1", "[]"))
		}
		base := read(t, "a.v1", bundle)
		var object map[string]any
		if err := json.Unmarshal(manifest, &object); err != nil {
			t.Fatal(err)
		}
		root := object["kind"].(string)
		if group, _, ok := strings.Cut(object["apiVersion"].(string), "/"); ok && root != "ClusterServiceVersion" &&
			root != "CustomResourceDefinition" {
			root = group + "/" + root
		} else if !ok {
			root = "/" + root
		}
		for _, l := range leavesOf(object, nil, root) {
			switch {
			case l.keys[0] == "apiVersion" || l.keys[0] == "kind": // another object, or none that is read
				continue
			// compared by the same code as those of the ClusterServiceVersion
			case i > 0 && strings.HasPrefix(l.path, "pod."):
				continue
			// the Service of the conversion, before the operator's own pods
			case l.path == "webhook.generateName" && l.keys[2] == 1:
				continue
			}
			if isHarmless(l.path) {
				used[l.path] = true
				continue
			}
			fields = append(fields, field{l, base, bundle})
		}
	}
	if len(fields) < 500 || len(used) < 60 {
		t.Errorf("only %d fields are there to change, and %d harmless ones were found", len(fields), len(used))
	}
	for _, f := range cases.Some(fields) {
		bundle := slices.Clone(f.bundle)
		bundle[0] = edited(t, f.bundle[0], f.keys, false)
		changed := ReadContents("a.v1", "", bundle)
		if fault := counts(f.base, changed); fault != "" {
			t.Errorf("%s is changed: %s", f.path, fault)
		}
		bundle[0] = edited(t, f.bundle[0], f.keys, true)
		removed := ReadContents("a.v1", "", bundle)
		// either value may be the default
		if fault := counts(f.base, removed); fault != "" && counts(changed, removed) != "" {
			t.Errorf("%s is removed: %s", f.path, fault)
		}
	}
}

// counts returns why a change does not count; "" if it does. What cannot be read is held.
func counts(base, changed *Contents) string {
	there := Compare(base, changed)
	if there.Fault != "" {
		return ""
	}
	back := Compare(changed, base)
	switch {
	case len(there.Differences)+len(back.Differences) == 0:
		return "no class reports it"
	case there.Contents == back.Contents:
		return fmt.Sprintf("the digest of %q stays", append(texts(there), texts(back)...))
	}
	return ""
}

// TestC5TablesAreReviewed keeps the list of harmless fields short, and each with its reason.
func TestC5TablesAreReviewed(t *testing.T) {
	if len(harmless) > 170 {
		t.Errorf("%d fields are harmless", len(harmless))
	}
	for path, reason := range harmless {
		if len(strings.Fields(reason)) < 3 {
			t.Errorf("%s has no reason", path)
		}
	}
}
