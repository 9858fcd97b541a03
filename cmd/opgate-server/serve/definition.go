package serve

import (
	"fmt"

	"github.com/go-logr/logr"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/opgate/opgate/snapshot/definition"
)

// The values of --operator-policy-definition.
const (
	managedDefinition  = "managed"
	externalDefinition = "external"
)

// externalDefinition reports whether another program owns the definition of OperatorPolicy, and then acts on the policies and writes their
// status as well.
func (o *Options) externalDefinition() bool { return o.OperatorPolicyDefinition == externalDefinition }

// addDefinition adds what follows the definition of OperatorPolicy to the manager, where another program owns it; else it returns nil.
func addDefinition(mgr manager.Manager, client dynamic.Interface, o *Options, log logr.Logger) (*definition.Watcher, error) {
	var watcher *definition.Watcher
	if o.externalDefinition() {
		var err error
		if watcher, err = definition.NewWatcher(client, log); err != nil {
			return nil, err
		}
		if err := mgr.Add(watcher); err != nil {
			return nil, fmt.Errorf("add %T: %w", watcher, err)
		}
	}
	metrics.Registry.MustRegister(definition.NewCollector(watcher))
	return watcher, nil
}
