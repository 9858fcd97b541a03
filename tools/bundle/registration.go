package bundle

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/rules/backstop"
)

// registrationDirectory is where pods have the manifests that they apply.
const registrationDirectory = "/etc/opgate/registration"

// registrationName is the name of the ConfigMap with these manifests. Each version has its own: pods of the version
// before read theirs until they end.
func registrationName(version string) string { return "opgate-registration-v" + version }

// registration is the ConfigMap.
func (p *parts) registration(version string) (*unstructured.Unstructured, error) {
	files := map[string][]string{}
	for _, object := range p.registered {
		text, err := yaml.Marshal(object.Object)
		if err != nil {
			return nil, err
		}
		file := "webhooks.yaml"
		if object.GetKind() == "CustomResourceDefinition" {
			file = "definitions.yaml"
		}
		files[file] = append(files[file], string(text))
	}
	configMap := &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: registrationName(version),
			Labels: map[string]string{"app.kubernetes.io/part-of": Package, versionLabel: "v" + version}},
		Data: map[string]string{},
	}
	for file, texts := range files {
		configMap.Data[file] = strings.Join(texts, "---\n")
	}
	return convert(configMap)
}

// mount mounts the manifests into the pods of a template, which apply them.
func mount(template *corev1.PodTemplateSpec, version string) {
	const volume = "registration"
	template.Spec.Volumes = append(template.Spec.Volumes, corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: registrationName(version)}},
	}})
	container := &template.Spec.Containers[0]
	container.VolumeMounts = append(container.VolumeMounts,
		corev1.VolumeMount{Name: volume, MountPath: registrationDirectory, ReadOnly: true})
	container.Args = append(container.Args, "--register="+registrationDirectory)
}

// registering are the permissions to apply the manifests.
func (p *parts) registering() []rbacv1.PolicyRule {
	var definitions []string
	for _, object := range p.registered {
		if object.GetKind() == "CustomResourceDefinition" {
			definitions = append(definitions, object.GetName())
		}
	}
	webhooks := []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"}
	return []rbacv1.PolicyRule{
		{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"},
			ResourceNames: definitions, Verbs: []string{"get", "patch"}},
		{APIGroups: []string{"admissionregistration.k8s.io"}, Resources: webhooks, ResourceNames: []string{"opgate"},
			Verbs: []string{"get", "patch"}},
		// RBAC cannot restrict create by name.
		{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"},
			Verbs: []string{"create"}},
		{APIGroups: []string{"admissionregistration.k8s.io"}, Resources: webhooks, Verbs: []string{"create"}},
		// The UID of the owner of the webhook configurations.
		{APIGroups: []string{"rbac.authorization.k8s.io"}, Resources: []string{"clusterroles"},
			ResourceNames: []string{backstop.Name}, Verbs: []string{"get"}},
	}
}

// convert returns an object without its status.
func convert(object any) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, err
	}
	delete(content, "status")
	u := &unstructured.Unstructured{Object: content}
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	return u, nil
}
