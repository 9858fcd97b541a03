package manager

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/opgate/opgate/internal/lease"
	"github.com/opgate/opgate/snapshot"
)

// restartDelay is the delay before a manager that cannot start, or lost the Lease, is replaced.
const restartDelay = 5 * time.Second

// Controller is added to a new manager each time this replica starts to compete for the Lease, and runs while it leads.
type Controller interface {
	AddTo(mgr ctrl.Manager) error
}

// Options configure a Manager.
type Options struct {
	// Config is the configuration of the API client. Required.
	Config *rest.Config
	// Store provides the snapshot that admission judges by. Required.
	Store *snapshot.Store
	// Lease elects the leader. Required: two leaders would do everything twice.
	Lease *Lease
	// Identity names this process in the Lease, for example the name of the pod. Required.
	Identity string
	// Lead adds the kinds that only the leader reads to the snapshot. It is called each time this replica starts to
	// lead, and must not block. Required.
	Lead func()
	// Metrics export whether this replica leads. Required.
	Metrics *Metrics
	// Controllers run while this replica leads. Default: none.
	Controllers []Controller
	// Log receives why a manager ended at V(0). Default: none.
	Log logr.Logger
	// Now is the clock, with the wall clock and the monotonic one. Required.
	Now func() time.Time
}

// Manager runs controllers while this replica leads.
type Manager struct{ Options }

// New returns a Manager. Start runs it.
func New(o Options) (*Manager, error) {
	if o.Config == nil || o.Store == nil || o.Lease == nil || o.Identity == "" || o.Lead == nil || o.Metrics == nil ||
		o.Now == nil {
		return nil, errors.New("manager options: Config, Store, Lease, Identity, Lead, Metrics and Now are required")
	}
	return &Manager{o}, nil
}

// Start competes for the Lease and runs the controllers until the context ends. Each term of leadership has a manager
// of controller-runtime of its own, since that cannot be started again.
func (m *Manager) Start(ctx context.Context) error {
	// Controllers need a snapshot; after this there always is one.
	_ = m.Store.Until(ctx, func(*snapshot.Snapshot) bool { return true })
	for ctx.Err() == nil {
		if err := m.lead(ctx); err != nil {
			m.Log.Error(err, "the background loop ended, it is started again", "after", restartDelay.String())
			_ = wait.PollUntilContextTimeout(ctx, restartDelay, 2*restartDelay, false,
				func(context.Context) (bool, error) { return true, nil })
		}
	}
	return nil
}

// lead waits for the Lease and runs the controllers until it is lost. They can write only while it is held.
func (m *Manager) lead(ctx context.Context) error {
	leading, end := context.WithCancel(ctx)
	defer end()
	t := m.Lease.term(m.Identity, m.Now, end)
	config := rest.CopyConfig(m.Config)
	config.Wrap(t.fence)
	scheme := runtime.NewScheme() // events are the only typed objects that controllers send
	if err := corev1.AddToScheme(scheme); err != nil {
		return err
	}
	mgr, err := manager.New(config, manager.Options{
		Scheme:                 scheme,
		Logger:                 m.Log,
		Metrics:                metricsserver.Options{BindAddress: "0"}, // served by the process
		HealthProbeBindAddress: "0",
	})
	if err != nil {
		return fmt.Errorf("make the manager of the loop: %w", err)
	}
	err = mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		m.Lead()
		m.Metrics.term.Store(t)
		defer m.Metrics.term.Store(nil)
		<-ctx.Done()
		return nil
	}))
	if err != nil {
		return fmt.Errorf("add the kinds of the leader: %w", err)
	}
	for _, c := range m.Controllers {
		if err := c.AddTo(mgr); err != nil {
			return fmt.Errorf("add %T: %w", c, err)
		}
	}
	election := lease.Election{Lock: t, Duration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod}
	if err := election.Lead(leading, mgr.Start); err != nil || ctx.Err() != nil {
		return err
	}
	_, over := t.state()
	return over
}
