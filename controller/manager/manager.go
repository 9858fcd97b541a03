// Package manager runs the controllers on the replica that holds the Lease. One that loses the Lease ends: what it has
// begun belongs to another one.
package manager

import (
	"context"
	"fmt"
	"net/http"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// Controller is added to the manager of the leader. It waits itself where it needs a snapshot.
type Controller interface {
	AddTo(mgr ctrl.Manager) error
}

// Leader is the manager of the controllers. Its clients send no write unless this replica leads.
type Leader struct {
	ctrl.Manager
	lease *Lease
}

// New returns a Leader, and registers the metric whether this replica leads.
func New(config *rest.Config, lease *Lease, registry prometheus.Registerer, log logr.Logger) (*Leader, error) {
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "opgate_loop_leading",
		Help: "Whether this replica runs the background loop (1) or not (0)."}, func() float64 {
		if lease.valid() == nil {
			return 1
		}
		return 0
	}))
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return fenced{next, lease} })
	scheme := runtime.NewScheme() // events and ConfigMaps are the only typed objects that controllers send
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	mgr, err := manager.New(config, manager.Options{
		Scheme:                              scheme,
		Logger:                              log,
		Metrics:                             metricsserver.Options{BindAddress: "0"}, // served by the process
		HealthProbeBindAddress:              "0",
		LeaderElection:                      true,
		LeaderElectionResourceLockInterface: lease,
		LeaderElectionID:                    LeaseName,
		LeaderElectionReleaseOnCancel:       true,
		LeaseDuration:                       new(leaseDuration),
		RenewDeadline:                       new(renewDeadline),
		RetryPeriod:                         new(retryPeriod),
	})
	if err != nil {
		return nil, fmt.Errorf("make the manager of the leader: %w", err)
	}
	return &Leader{mgr, lease}, nil
}

// Start runs the controllers while this replica leads, until the context ends or the Lease is lost. That is no error.
func (l *Leader) Start(ctx context.Context) error {
	err := l.Manager.Start(ctx)
	if l.lease.renewed.Load() != nil {
		return nil // not released: the Lease was lost
	}
	return err
}
