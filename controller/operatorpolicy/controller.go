package operatorpolicy

import (
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/controller/manager"
	"github.com/opgate/opgate/internal/events"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/grant"
	"github.com/opgate/opgate/snapshot"
	"github.com/opgate/opgate/snapshot/packages"
)

// workers is the number of namespaces that are reconciled concurrently. A worker mostly waits for the API server: with
// few workers, approvals would be delayed when many plans are created at once.
const workers = 16

// Controller reconciles OperatorPolicies, by namespace, on the leader. All fields are required unless they have a
// default.
type Controller struct {
	// Store provides the snapshot that admission judges by.
	Store *snapshot.Store
	// Packages is the cache of catalogs' packages.
	Packages *packages.Cache
	// Metrics export the states of policies, Writes count the writes.
	Metrics *Metrics
	Writes  *apply.Metrics
	// Events records what happens to plans, on them. Default: nothing is recorded.
	Events *events.Recorder
	// Escaped returns why ClusterServiceVersions that were installed while Opgate was not running are not allowed by a
	// policy, one sentence for each.
	Escaped func(namespace, name string) []string
	// Identity names this process in compliance events, for example the name of the pod.
	Identity string
	// Ungoverned is what to do with plans of operators without a policy that are held by a policy for another
	// one; annotation opgate.io/ungoverned of a namespace takes precedence.
	Ungoverned rules.UngovernedMode
	// Grants are the rights that the installation withholds. Default: none.
	Grants grant.Set
	// Key returns the key of the marks of authors; nil while there is none.
	Key func() []byte
	// HistoryLength is the number of compliance messages in a status.
	HistoryLength int
	// Log receives writes at V(0) and evaluations at V(1). Default: none.
	Log logr.Logger
	// Now is the clock.
	Now func() time.Time

	// queue has namespaces; "" stands for the policies that govern nothing yet.
	queue manager.Queue[string]
}

// AddTo adds the controller to the manager of the leader.
func (c *Controller) AddTo(mgr ctrl.Manager) error {
	writer := apply.Writer{Client: mgr.GetClient(), Store: c.Store, Metrics: c.Writes}
	r := &reconciler{Controller: c, writer: writer, reader: mgr.GetAPIReader()}
	return manager.Registration[string]{
		Name:       "operatorpolicy",
		Reconciler: r,
		Workers:    workers,
		Queue:      &c.queue,
		Store:      c.Store,
		Changed:    r.changed,
		Kinds:      statusKinds,
	}.AddTo(mgr)
}
