package chart_test

import (
	"fmt"
	"strings"
	"testing"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/tools/chart"
)

// objects are what was rendered, by apiVersion, kind and name.
type objects map[string]metav1.Object

func keyOf(apiVersion, kind, name string) string { return apiVersion + " " + kind + " " + name }

// newObject returns an empty object of each kind that the chart has.
func newObject(apiVersion, kind string) metav1.Object {
	switch apiVersion + " " + kind {
	case "v1 Namespace":
		return &corev1.Namespace{}
	case "v1 Pod":
		return &corev1.Pod{}
	case "v1 ResourceQuota":
		return &corev1.ResourceQuota{}
	case "v1 Service":
		return &corev1.Service{}
	case "v1 ServiceAccount":
		return &corev1.ServiceAccount{}
	case "apps/v1 Deployment":
		return &appsv1.Deployment{}
	case "policy/v1 PodDisruptionBudget":
		return &policyv1.PodDisruptionBudget{}
	case "networking.k8s.io/v1 NetworkPolicy":
		return &networkingv1.NetworkPolicy{}
	case "rbac.authorization.k8s.io/v1 ClusterRole":
		return &rbacv1.ClusterRole{}
	case "rbac.authorization.k8s.io/v1 ClusterRoleBinding":
		return &rbacv1.ClusterRoleBinding{}
	case "rbac.authorization.k8s.io/v1 Role":
		return &rbacv1.Role{}
	case "rbac.authorization.k8s.io/v1 RoleBinding":
		return &rbacv1.RoleBinding{}
	case "admissionregistration.k8s.io/v1 MutatingWebhookConfiguration":
		return &admissionregistrationv1.MutatingWebhookConfiguration{}
	case "admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration":
		return &admissionregistrationv1.ValidatingWebhookConfiguration{}
	case "apiextensions.k8s.io/v1 CustomResourceDefinition":
		return &apiextensionsv1.CustomResourceDefinition{}
	case "cert-manager.io/v1 Issuer":
		return &certmanagerv1.Issuer{}
	case "cert-manager.io/v1 Certificate":
		return &certmanagerv1.Certificate{}
	case "monitoring.coreos.com/v1 ServiceMonitor":
		return &serviceMonitor{}
	case "monitoring.coreos.com/v1 PodMonitor":
		return &podMonitor{}
	case "monitoring.coreos.com/v1 PrometheusRule":
		return &prometheusRule{}
	case "v1 ConfigMap":
		return &corev1.ConfigMap{}
	}
	return nil
}

// decode reads documents as the API server would with strict validation: unknown and repeated fields are errors.
func decode(documents []chart.Document) (objects, error) {
	all := objects{}
	for _, d := range documents {
		key := keyOf(d.APIVersion, d.Kind, d.Name)
		object := newObject(d.APIVersion, d.Kind)
		if object == nil {
			return nil, fmt.Errorf("unexpected kind: %s", key)
		}
		if err := yaml.UnmarshalStrict([]byte(d.Text), object); err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		if other := all[key]; other != nil && other.GetNamespace() != object.GetNamespace() {
			key += " in " + object.GetNamespace() // the Role of another namespace of catalogs
		}
		if all[key] != nil {
			return nil, fmt.Errorf("%s is set twice", key)
		}
		all[key] = object
	}
	return all, nil
}

// of returns the objects of one type, by name.
func of[T metav1.Object](o objects) map[string]T {
	found := map[string]T{}
	for _, object := range o {
		if typed, ok := object.(T); ok {
			found[typed.GetName()] = typed
		}
	}
	return found
}

// one returns the object of a type that has the name. It has to be there.
func one[T metav1.Object](t *testing.T, o objects, name string) T {
	t.Helper()
	object, ok := of[T](o)[name]
	if !ok {
		t.Fatalf("there is no %T %s", object, name)
	}
	return object
}

func deploymentOf(t *testing.T, o objects) *appsv1.Deployment {
	t.Helper()
	return one[*appsv1.Deployment](t, o, "opgate")
}

func podOf(t *testing.T, o objects) *corev1.PodSpec {
	t.Helper()
	return &deploymentOf(t, o).Spec.Template.Spec
}

// container is the only one of the pod.
func container(t *testing.T, o objects) *corev1.Container {
	t.Helper()
	pod := podOf(t, o)
	if len(pod.Containers) != 1 || len(pod.InitContainers) != 0 {
		t.Fatalf("want one container, got %d and %d that initialise", len(pod.Containers), len(pod.InitContainers))
	}
	return &pod.Containers[0]
}

// flagsOf are the arguments of the server, by flag.
func flagsOf(t *testing.T, o objects) map[string][]string {
	t.Helper()
	args := container(t, o).Args
	if len(args) == 0 || args[0] != "serve" {
		t.Fatalf("arguments are %q, want serve first", args)
	}
	flags := map[string][]string{}
	for _, arg := range args[1:] {
		name, value, ok := strings.Cut(arg, "=")
		if !ok || !strings.HasPrefix(name, "--") {
			t.Fatalf("argument %q is not --flag=value", arg)
		}
		name = strings.TrimPrefix(name, "--")
		flags[name] = append(flags[name], value)
	}
	return flags
}

// rolesOf are the rules of all roles, by kind and name.
func rolesOf(o objects) map[string][]rbacv1.PolicyRule {
	roles := map[string][]rbacv1.PolicyRule{}
	for name, role := range of[*rbacv1.ClusterRole](o) {
		roles["ClusterRole "+name] = role.Rules
	}
	for name, role := range of[*rbacv1.Role](o) {
		roles["Role "+name] = role.Rules
	}
	return roles
}

func yamlOf(object metav1.Object) (string, error) {
	text, err := yaml.Marshal(object)
	return string(text), err
}
