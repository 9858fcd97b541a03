package diff

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/pager"

	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/snapshot/contents"
	"github.com/opgate/opgate/stream"
)

var (
	installPlans  = olm.InstallPlanGVK.GroupVersion().WithResource("installplans")
	installed     = olm.ClusterServiceVersionGVK.GroupVersion().WithResource("clusterserviceversions")
	subscriptions = olm.SubscriptionGVK.GroupVersion().WithResource("subscriptions")
)

// cluster reads the objects that a plan is compared with.
type cluster struct {
	objects *stream.Client
	lists   dynamic.Interface
}

// connect returns the cluster that flags name.
func connect(flags cli.Kubeconfig) (*cluster, error) {
	config, err := flags.Load()
	if err != nil {
		return nil, err
	}
	objects, err := stream.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	lists, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return &cluster{objects, lists}, nil
}

// changes reads a plan and what it changes.
func (c *cluster) changes(ctx context.Context, key types.NamespacedName) (*olm.InstallPlan, *rules.PlanChanges, error) {
	raw, err := c.objects.Get(ctx, installPlans, key)
	if err != nil {
		return nil, nil, err
	}
	plan, err := olm.DecodePlan(raw)
	if err != nil {
		return nil, nil, err
	}
	ns, err := c.namespace(ctx, key.Namespace)
	if err != nil {
		return nil, nil, err
	}
	reading, err := contents.Read(ctx, c.objects, key, ns.Replacements(plan))
	if err != nil {
		return nil, nil, err
	}
	return plan, &reading.PlanChanges, nil
}

// namespace reads what is installed in a namespace, the plans that installed it, and the Subscriptions, which name packages and channels.
func (c *cluster) namespace(ctx context.Context, name string) (*rules.Namespace, error) {
	var in rules.NamespaceContents
	err := c.each(ctx, installed, name, func(raw []byte) error {
		csv, err := olm.DecodeCSV(raw)
		if err != nil {
			return err
		}
		if found, here := rules.InstalledBy(csv); here {
			in.CSVs = append(in.CSVs, found)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = c.each(ctx, installPlans, name, func(raw []byte) error {
		plan, err := olm.DecodePlan(raw)
		in.Plans = append(in.Plans, plan)
		return err
	})
	if err != nil {
		return nil, err
	}
	err = c.each(ctx, subscriptions, name, func(raw []byte) error {
		sub, err := olm.DecodeSubscription(raw)
		in.Subscriptions = append(in.Subscriptions, sub)
		return err
	})
	return rules.NewNamespace(name, in), err
}

// each calls a function with each object of a kind in a namespace.
func (c *cluster) each(ctx context.Context, resource schema.GroupVersionResource, namespace string, do func(raw []byte) error) error {
	list := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return c.lists.Resource(resource).Namespace(namespace).List(ctx, options)
	})
	// An object may be as large as etcd accepts, and takes several times that (threat G36).
	list.PageSize, list.PageBufferSize = 20, 0
	err := list.EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
		raw, err := json.Marshal(object.(*unstructured.Unstructured).Object)
		if err != nil {
			return err
		}
		return do(raw)
	})
	if err != nil {
		return fmt.Errorf("list %s: %w", resource.Resource, err)
	}
	return nil
}
