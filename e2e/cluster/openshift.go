package cluster

import (
	"context"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var clusterVersionKind = schema.GroupVersionKind{Group: "config.openshift.io", Version: "v1", Kind: "ClusterVersion"}

// clusterVersions is the resource that has OpenShift's version, with the part of its schema that this needs.
func clusterVersions() *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "clusterversions." + clusterVersionKind.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: clusterVersionKind.Group, Scope: apiextensionsv1.ClusterScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "clusterversions", Singular: "clusterversion",
				Kind: clusterVersionKind.Kind},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: clusterVersionKind.Version, Served: true, Storage: true,
				Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
				Schema:       &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}},
			}},
		},
	}
}

// TellOpenShift makes the cluster report a version of OpenShift from now on.
func (c *Cluster) TellOpenShift(ctx context.Context, version string) error {
	definitions := []*apiextensionsv1.CustomResourceDefinition{clusterVersions()}
	if err := installCRDs(ctx, c.plane.masters, definitions, "", ""); err != nil {
		return err
	}
	return tellOpenShift(ctx, c.masters, version)
}

// tellOpenShift writes the version of OpenShift that the cluster reports.
func tellOpenShift(ctx context.Context, c client.Client, version string) error {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(clusterVersionKind)
	u.SetName("version")
	err := c.Create(ctx, u)
	if apierrors.IsAlreadyExists(err) {
		err = c.Get(ctx, client.ObjectKeyFromObject(u), u)
	}
	if err != nil {
		return fmt.Errorf("say that this is OpenShift: %w", err)
	}
	u.Object["status"] = map[string]any{"desired": map[string]any{"version": version}}
	if err := c.Status().Update(ctx, u); err != nil {
		return fmt.Errorf("say that this is OpenShift %s: %w", version, err)
	}
	return nil
}
