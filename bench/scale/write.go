package scale

import (
	"context"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// create creates the object of a kind in testdata.
func (s *site) create(
	ctx context.Context, as dynamic.Interface, resource schema.GroupVersionResource, kind, namespace string,
) (*unstructured.Unstructured, error) {
	u, err := objectOf(kind, namespace, allowed, firstPlan)
	if err != nil {
		return nil, err
	}
	if resource != packageManifests { // whose status is no subresource here
		delete(u.Object, "status")
	}
	return again(ctx, s, func() (*unstructured.Unstructured, error) {
		return as.Resource(resource).Namespace(u.GetNamespace()).Create(ctx, u, metav1.CreateOptions{})
	})
}

// status writes the status of an object as in testdata, as OLM.
func (s *site) status(
	ctx context.Context, resource schema.GroupVersionResource, u *unstructured.Unstructured, kind, namespace, version,
	plan string,
) error {
	full, err := objectOf(kind, namespace, version, plan)
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"status": full.Object["status"]})
	if err != nil {
		return err
	}
	_, err = again(ctx, s, func() (*unstructured.Unstructured, error) { // whatever Opgate has written meanwhile
		return s.olm.Resource(resource).Namespace(u.GetNamespace()).Patch(ctx, u.GetName(), types.MergePatchType, patch,
			metav1.PatchOptions{}, "status")
	})
	return err
}

// createNamespaces creates them, and what OLM and its users have written in each.
func (s *site) createNamespaces(ctx context.Context) error {
	began := s.Now()
	err := s.each(ctx, len(s.names), writers, func(ctx context.Context, i int) error {
		name := s.names[i]
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace",
			"metadata": map[string]any{"name": name}}}
		if _, err := s.admin.Resource(namespaces).Create(ctx, u, metav1.CreateOptions{}); err != nil {
			return err
		}
		if _, err := s.create(ctx, s.admin, operatorGroups, "OperatorGroup", name); err != nil {
			return err
		}
		sub, err := s.create(ctx, s.admin, subscriptions, "Subscription", name)
		if err != nil {
			return err
		}
		if err := s.propose(ctx, name, firstPlan, refused, sub); err != nil {
			return err
		}
		return s.status(ctx, subscriptions, sub, "Subscription", name, refused, firstPlan)
	})
	s.row.SetupSeconds = s.Now().Sub(began).Seconds()
	return err
}

// propose writes a plan that requires approval.
func (s *site) propose(ctx context.Context, namespace, name, version string, sub *unstructured.Unstructured) error {
	plan, status, err := s.newPlan(ctx, namespace, name, version, sub)
	if err != nil {
		return err
	}
	return s.require(ctx, plan, status)
}

// newPlan writes a plan without its status, as OLM does first.
func (s *site) newPlan(
	ctx context.Context, namespace, name, version string, sub *unstructured.Unstructured,
) (plan *unstructured.Unstructured, status any, err error) {
	u, err := planOf(namespace, name, version, sub)
	if err != nil {
		return nil, nil, err
	}
	status = u.Object["status"]
	delete(u.Object, "status")
	plan, err = again(ctx, s, func() (*unstructured.Unstructured, error) {
		return s.olm.Resource(installPlans).Namespace(namespace).Create(ctx, u, metav1.CreateOptions{})
	})
	return plan, status, err
}

// require writes the status by which a plan requires approval.
func (s *site) require(ctx context.Context, plan *unstructured.Unstructured, status any) error {
	plan.Object["status"] = status
	_, err := again(ctx, s, func() (*unstructured.Unstructured, error) {
		return s.olm.Resource(installPlans).Namespace(plan.GetNamespace()).UpdateStatus(ctx, plan,
			metav1.UpdateOptions{})
	})
	return err
}
