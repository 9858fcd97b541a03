package serve

import (
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/opgate/opgate/snapshot/definition"
)

// The values of --operator-policy-definition.
const (
	managedDefinition  = "managed"
	externalDefinition = "external"
)

// externalDefinition reports whether another program owns the definition of OperatorPolicy, and then acts on the
// policies and writes their status as well.
func (o *Options) externalDefinition() bool { return o.OperatorPolicyDefinition == externalDefinition }

// addDefinition adds what follows the definition of OperatorPolicy, where another program owns it; else it returns nil.
func (p *process) addDefinition() (watcher *definition.Watcher, err error) {
	if p.options.externalDefinition() {
		if watcher, err = definition.NewWatcher(p.client, p.log.WithName("definition")); err != nil {
			return nil, err
		}
		err = p.add(watcher)
	}
	metrics.Registry.MustRegister(definition.NewCollector(watcher))
	return watcher, err
}
