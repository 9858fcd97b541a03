package policy

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"

	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/snapshot"
)

// Options configure the Controller.
type Options struct {
	// Store has Policies and PolicySets. Required.
	Store *snapshot.Store
	// Metrics show in which state Policies are, and what is watched for them. Required.
	Metrics *Metrics
	// PendingGuards is what becomes of an OperatorPolicy or a Constraint whose dependencies are not met.
	// Default: dependency.Suspend.
	PendingGuards dependency.PendingGuards
	// Gatekeeper lets kinds of Gatekeeper be templates.
	Gatekeeper bool
	// ExcludedNamespaces are those that the webhook configurations leave out, Opgate's own among them. Nobody was asked whether
	// the author of a Policy there may write what it would make, so nothing of it is applied. Default: none.
	ExcludedNamespaces []string
	// Key returns the key that the marks of Policies are signed with, nil while it is not known: nothing is done until it is.
	// Required.
	Key func() []byte
	// Wrote is told of every write and what became of it. Default: nobody is told.
	Wrote func(verb, kind string, err error)
	// Identity names this process in events, such as the name of the pod. Default: none.
	Identity string
	// Workers is how many Policies are worked on at once. A worker mostly waits for the API server. Default: 16.
	Workers int
	// Log takes writes at V(0). Default: none.
	Log logr.Logger
	// Now is the clock. Required.
	Now func() time.Time
}

func (o *Options) complete() error {
	if o.Store == nil || o.Metrics == nil || o.Key == nil || o.Now == nil {
		return errors.New("ordering controller options: Store, Metrics, Key and Now are required")
	}
	switch o.PendingGuards {
	case "":
		o.PendingGuards = dependency.Suspend
	case dependency.Suspend, dependency.Delete:
	default:
		return fmt.Errorf("ordering controller options: PendingGuards %q is not one of %q, %q", o.PendingGuards, dependency.Suspend, dependency.Delete)
	}
	if o.Wrote == nil {
		o.Wrote = func(string, string, error) {}
	}
	if o.Workers < 1 {
		o.Workers = 16
	}
	return nil
}
