package node

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/internal/speed"
)

const (
	// controllersTimeout bounds the time until the controllers work. It takes seconds.
	controllersTimeout = speed.LongWait
	pollInterval       = 100 * time.Millisecond
)

// controllers are those that run. Some of the others would delete objects of a node without a kubelet, or need a cloud.
var controllers = []string{
	"clusterrole-aggregation-controller",
	"deployment-controller",
	"disruption-controller",
	"endpointslice-controller",
	"garbage-collector-controller",
	"job-controller",
	"namespace-controller",
	"replicaset-controller",
	"resourcequota-controller",
	"serviceaccount-controller",
}

// startControllers starts kube-controller-manager. As on a real cluster each controller is a service account of its
// own, with the permissions of its bootstrap role.
func startControllers(ctx context.Context, c *cluster.Cluster, path string) (*cluster.Companion, error) {
	config, err := c.Credentials("system:kube-controller-manager")
	if err != nil {
		return nil, err
	}
	kubeconfig := filepath.Join(c.Dir(), "kube-controller-manager.kubeconfig")
	if err := cluster.WriteKubeconfig(kubeconfig, config); err != nil {
		return nil, err
	}
	return c.StartCompanion(ctx, "kube-controller-manager", nil, path,
		"--kubeconfig", kubeconfig,
		"--controllers", strings.Join(controllers, ","),
		"--use-service-account-credentials",
		"--leader-elect=false",
		"--secure-port=0",
		"--kube-api-qps=200", "--kube-api-burst=400",
	)
}

// waitForControllers waits until one of them has written something. They start together.
func waitForControllers(ctx context.Context, client kubernetes.Interface, process *cluster.Companion) error {
	var last error
	err := speed.Poll(ctx, pollInterval, controllersTimeout,
		func(ctx context.Context) (bool, error) {
			if err := process.Err(); err != nil {
				return false, err
			}
			_, last = client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
			return last == nil, ignoreNotFound(last)
		})
	if err != nil {
		return fmt.Errorf("wait for kube-controller-manager: %w", errors.Join(err, last))
	}
	return nil
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
