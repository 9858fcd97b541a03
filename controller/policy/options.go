package policy

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"

	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/rules/grant"
	"github.com/opgate/opgate/snapshot"
)

// Options configure the Controller.
type Options struct {
	// Store provides Policies and PolicySets. Required.
	Store *snapshot.Store
	// Metrics export the states of Policies and the number of watches, Writes count the writes. Required.
	Metrics *Metrics
	Writes  *apply.Metrics
	// PendingGuards is what to do with an OperatorPolicy or a Constraint whose dependencies are not met.
	// Default: dependency.Suspend.
	PendingGuards dependency.PendingGuards
	// Gatekeeper allows kinds of Gatekeeper in templates.
	Gatekeeper bool
	// Grants are the rights that the installation withholds. Default: none.
	Grants grant.Set
	// ExcludedNamespaces are those that the webhook configurations exclude, Opgate's own among them. The permissions of
	// the authors of Policies there were not checked, so nothing of those Policies is applied. Default: none.
	ExcludedNamespaces []string
	// Key returns the key that the marks of Policies are signed with, nil while it is not known: until then nothing is
	// done. Required.
	Key func() []byte
	// Identity names this process in events, for example the name of the pod. Default: none.
	Identity string
	// Workers is the number of Policies that are reconciled concurrently. A worker mostly waits for the API server.
	// Default: 16.
	Workers int
	// Log receives writes at V(0). Default: none.
	Log logr.Logger
	// Now is the clock. Required.
	Now func() time.Time
}

func (o *Options) complete() error {
	if o.Store == nil || o.Metrics == nil || o.Writes == nil || o.Key == nil || o.Now == nil {
		return errors.New("ordering controller options: Store, Metrics, Writes, Key and Now are required")
	}
	switch o.PendingGuards {
	case "":
		o.PendingGuards = dependency.Suspend
	case dependency.Suspend, dependency.Delete:
	default:
		return fmt.Errorf("ordering controller options: PendingGuards %q is not one of %q, %q", o.PendingGuards,
			dependency.Suspend, dependency.Delete)
	}
	if o.Workers < 1 {
		o.Workers = 16
	}
	return nil
}
