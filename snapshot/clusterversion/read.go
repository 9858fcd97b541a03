package clusterversion

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/opgate/opgate/rules/facts"
)

// Read reads the versions of the cluster once, for commands. As in Options.Changed, OpenShift is empty if the cluster
// is not OpenShift. If only that version cannot be read, that of Kubernetes is returned with the error.
func Read(ctx context.Context, config *rest.Config) (facts.Cluster, error) {
	w, err := New(Options{Config: config, Changed: func(facts.Cluster) {}})
	if err != nil {
		return facts.Cluster{}, err
	}
	if err := w.readKubernetes(ctx); err != nil {
		return facts.Cluster{}, fmt.Errorf("read the version of Kubernetes: %w", err)
	}
	versions := facts.Cluster{Version: w.kubernetes}
	served, err := w.isOpenShift(ctx)
	if err != nil || !served {
		return versions, err
	}
	object, err := w.objects.Resource(clusterVersions).Get(ctx, clusterVersionName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return versions, nil
	}
	if err != nil {
		return versions, fmt.Errorf("read the version of OpenShift: %w", err)
	}
	versions.OpenShift = desired(object)
	return versions, nil
}
