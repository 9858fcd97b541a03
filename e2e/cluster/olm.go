package cluster

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// olmDeployment is the name of the Deployment by which users and the chart find the account that OLM runs as.
const olmDeployment = "olm-operator"

// CreateOLMDeployment creates the Deployment of an OLM in a namespace, without replicas: where OLM runs here, it is a
// process outside the cluster.
func (c *Cluster) CreateOLMDeployment(ctx context.Context, namespace, serviceAccount string) error {
	labels := map[string]string{"app": olmDeployment}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: olmDeployment},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					ServiceAccountName: serviceAccount,
					Containers: []corev1.Container{{Name: olmDeployment,
						Image: "quay.io/operator-framework/olm"}},
				},
			},
		},
	}
	if err := c.masters.Create(ctx, deployment); err != nil {
		return fmt.Errorf("create the Deployment of OLM: %w", err)
	}
	return nil
}

// DeleteOLMDeployment deletes it.
func (c *Cluster) DeleteOLMDeployment(ctx context.Context, namespace string) error {
	return client.IgnoreNotFound(c.masters.Delete(ctx,
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: olmDeployment}}))
}
