package plugin

import (
	"slices"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"

	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/snapshot"
)

// selection are the plans that a label selector selects; nil for all.
type selection map[types.NamespacedName]bool

// selected asks the API server which plans a selector selects: rules read no labels of plans, so that they are not
// kept. Errors: it is not a selector, or the plans cannot be listed.
func (o *options) selected(cmd *cobra.Command, selector string) (selection, error) {
	if selector == "" {
		return nil, nil
	}
	if _, err := labels.Parse(selector); err != nil {
		return nil, cli.Usage(cmd, "-l %s: %s", text.Quote(selector), text.Escape(err.Error()))
	}
	config, err := o.kubeconfig.Load()
	if err != nil {
		return nil, unusable("%v", err)
	}
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, unusable("make a client: %v", err)
	}
	list, err := client.Resource(snapshot.InstallPlans.GroupVersionResource()).Namespace(o.namespace).List(
		cmd.Context(), metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, unusable("list InstallPlans: %s", text.Escape(err.Error()))
	}
	found := selection{}
	for i := range list.Items {
		found[types.NamespacedName{Namespace: list.Items[i].Namespace, Name: list.Items[i].Name}] = true
	}
	return found, nil
}

// of returns the plans that are selected.
func (s selection) of(plans []pendingPlan) []pendingPlan {
	if s == nil {
		return plans
	}
	return slices.DeleteFunc(plans,
		func(p pendingPlan) bool { return !s[types.NamespacedName{Namespace: p.Namespace, Name: p.Name}] })
}
