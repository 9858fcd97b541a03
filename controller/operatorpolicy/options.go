package operatorpolicy

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"

	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/internal/events"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/grant"
	"github.com/opgate/opgate/snapshot"
	"github.com/opgate/opgate/snapshot/packages"
)

// Options configure the Controller.
type Options struct {
	// Store provides the snapshot that admission judges by. Required.
	Store *snapshot.Store
	// Packages is the cache of catalogs' packages. Required.
	Packages *packages.Cache
	// Metrics export the states of policies, Writes count the writes. Required.
	Metrics *Metrics
	Writes  *apply.Metrics
	// Events records what happens to plans, on them. Default: nothing is recorded.
	Events *events.Recorder
	// Escaped returns why ClusterServiceVersions that were installed while Opgate was not running are not allowed by a
	// policy, one sentence for each. Default: none.
	Escaped func(namespace, name string) []string
	// Identity names this process in compliance events, for example the name of the pod. Default: none.
	Identity string
	// Ungoverned is what to do with plans of operators without a policy that are held by a policy for another
	// one; annotation opgate.io/ungoverned of a namespace takes precedence. Default: rules.ApproveUngoverned.
	Ungoverned rules.UngovernedMode
	// Grants are the rights that the installation withholds. Default: none.
	Grants grant.Set
	// Key returns the key of the marks of authors; nil while there is none. Default: there is none.
	Key func() []byte
	// HistoryLength is the number of compliance messages in a status. Default: 10.
	HistoryLength int
	// Workers is the number of namespaces that are reconciled concurrently. A worker mostly waits for the API server:
	// with few workers, approvals would be delayed when many plans are created at once. Default: 16.
	Workers int
	// Log receives writes at V(0) and evaluations at V(1). Default: none.
	Log logr.Logger
	// Now is the clock. Required.
	Now func() time.Time
}

func (o *Options) complete() error {
	if o.Store == nil || o.Packages == nil || o.Metrics == nil || o.Writes == nil || o.Now == nil {
		return errors.New("operatorpolicy controller options: Store, Packages, Metrics, Writes and Now are required")
	}
	if o.Key == nil {
		o.Key = func() []byte { return nil }
	}
	if o.Escaped == nil {
		o.Escaped = func(string, string) []string { return nil }
	}
	switch o.Ungoverned {
	case "":
		o.Ungoverned = rules.ApproveUngoverned
	case rules.ApproveUngoverned, rules.HoldUngoverned:
	default:
		return fmt.Errorf("operatorpolicy controller options: Ungoverned %q is not one of %q, %q", o.Ungoverned,
			rules.ApproveUngoverned, rules.HoldUngoverned)
	}
	if o.Workers < 1 {
		o.Workers = 16
	}
	return nil
}
