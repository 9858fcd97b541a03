package bundle

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/rules/backstop"
	"github.com/opgate/opgate/tools/chart"
)

const (
	versionLabel   = "app.kubernetes.io/version"
	serviceAccount = "opgate"
)

// parts are the objects of the chart, by who creates them on a cluster.
type parts struct {
	deployment appsv1.Deployment
	// permissions are those of the pods on the whole cluster.
	permissions []rbacv1.PolicyRule
	// registered are the objects that the pods apply.
	registered []*unstructured.Unstructured
	// namespaced and global are those that OLM creates as they are.
	namespaced, global []*unstructured.Unstructured
}

// divide takes the objects of the chart apart. It is an error if it has one of a kind that nothing here is known of.
func divide(documents []chart.Document) (*parts, error) {
	p := &parts{}
	var objects []*unstructured.Unstructured
	for _, d := range documents {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(d.Text), &object.Object); err != nil {
			return nil, fmt.Errorf("%s %s: %w", d.Kind, d.Name, err)
		}
		objects = append(objects, object)
	}
	roles, err := rolesOfPods(objects)
	if err != nil {
		return nil, err
	}
	for _, object := range objects {
		withoutHelm(object)
		if err := p.add(object, roles); err != nil {
			return nil, fmt.Errorf("%s %s of the chart: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return p, nil
}

// withoutHelm removes what helm reports of an object.
func withoutHelm(object *unstructured.Unstructured) {
	labels, annotations := object.GetLabels(), object.GetAnnotations()
	delete(labels, "helm.sh/chart")
	delete(labels, "app.kubernetes.io/managed-by")
	delete(annotations, "helm.sh/resource-policy")
	object.SetLabels(labels)
	object.SetAnnotations(annotations)
}

// rolesOfPods returns the names of the ClusterRoles that are bound to the account of the pods.
func rolesOfPods(objects []*unstructured.Unstructured) ([]string, error) {
	var names []string
	for _, object := range objects {
		if object.GetKind() != "ClusterRoleBinding" {
			continue
		}
		var binding rbacv1.ClusterRoleBinding
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &binding); err != nil {
			return nil, err
		}
		if ofPods(&binding) {
			names = append(names, binding.RoleRef.Name)
		}
	}
	return names, nil
}

func ofPods(binding *rbacv1.ClusterRoleBinding) bool {
	return slices.ContainsFunc(binding.Subjects,
		func(s rbacv1.Subject) bool { return s.Kind == rbacv1.ServiceAccountKind && s.Name == serviceAccount })
}

// add adds an object to the part that it belongs to.
func (p *parts) add(object *unstructured.Unstructured, rolesOfPods []string) error {
	convert := func(to any) error { return runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, to) }
	switch object.GetKind() {
	case "CustomResourceDefinition", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
		p.registered = append(p.registered, object)
	case "Deployment":
		return convert(&p.deployment)
	case "ClusterRole":
		if !slices.Contains(rolesOfPods, object.GetName()) {
			p.global = append(p.global, object)
			return nil
		}
		if object.GetName() == backstop.Name { // found by its name, as an owner
			p.global = append(p.global, object)
		}
		var role rbacv1.ClusterRole
		err := convert(&role)
		p.permissions = append(p.permissions, role.Rules...)
		return err
	case "ClusterRoleBinding":
		var binding rbacv1.ClusterRoleBinding
		if err := convert(&binding); err != nil {
			return err
		}
		if !ofPods(&binding) { // else OLM binds the permissions in the ClusterServiceVersion
			p.global = append(p.global, object)
		}
	case "Role", "RoleBinding", "Service", "PodDisruptionBudget":
		p.namespaced = append(p.namespaced, object)
	case "ServiceAccount": // OLM makes it with the permissions
	case "ResourceQuota", "NetworkPolicy": // OLM does not install the first, and not every version the second
	default:
		return fmt.Errorf("the bundle has no place for this kind: add it to tools/bundle")
	}
	return nil
}

// release writes a version into all objects.
func (p *parts) release(version string) {
	for _, object := range slices.Concat(p.registered, p.namespaced, p.global) {
		setLabels(object, map[string]string{versionLabel: "v" + version})
	}
	p.deployment.Labels[versionLabel] = "v" + version
}

// manifests are the objects that OLM creates as they are, such that it removes them with the ClusterServiceVersion.
func (p *parts) manifests(version string) []*unstructured.Unstructured {
	for _, object := range p.global {
		// By these labels OLM finds what to delete. It sets them itself on roles that it makes of permissions.
		setLabels(object, map[string]string{"olm.owner": Name(version), "olm.owner.kind": "ClusterServiceVersion",
			"olm.owner.namespace": Namespace})
	}
	for _, object := range p.namespaced {
		object.SetNamespace("") // OLM sets the one that it installs in
		if strings.HasPrefix(object.GetKind(), "Role") {
			// OLM makes the ClusterServiceVersion an owner of the other kinds, and for these it fills in the UID.
			object.Object["metadata"].(map[string]any)["ownerReferences"] = []any{map[string]any{
				"apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion", "name": Name(version),
				"uid": "",
			}}
		}
	}
	return slices.Concat(p.namespaced, p.global)
}

// setLabels adds labels to those of an object.
func setLabels(object *unstructured.Unstructured, more map[string]string) {
	labels := map[string]string{}
	maps.Copy(labels, object.GetLabels())
	maps.Copy(labels, more)
	object.SetLabels(labels)
}
