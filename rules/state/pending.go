package state

import (
	"strings"

	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/rules/verdict"
)

// WithDependencies returns the namespace with the graph of Policies, so that a refusal shows the full dependency chain
// of a suspended policy. Without it a refusal names only the first Policy.
func (n *Namespace) WithDependencies(graph *dependency.Graph) *Namespace {
	if n == nil || graph == nil {
		return n
	}
	with := *n
	with.graph = graph
	return &with
}

// Suspended returns a hold for a policy or Constraint that a Policy has suspended because of its dependencies.
// Pending is that Policy, as namespace/name, or any other value of the annotation; if it is empty nothing is held.
// Waits is what is known without a graph.
func (n *Namespace) Suspended(pending, waits, source, what string) verdict.Finding {
	if pending == "" {
		return verdict.Finding{}
	}
	return verdict.Finding{Decision: verdict.Hold, What: what + " is held",
		Accepted: dependency.ReasonDependencyPending + ": " + n.chain(pending, waits, source)}
}

func (n *Namespace) chain(pending, waits, source string) string {
	namespace, name, named := strings.Cut(pending, "/")
	switch {
	case !named:
		return "annotation " + metakey.Pending + " says " + text.Quote(pending)
	case waits != "" && (n == nil || n.graph == nil):
		return waits
	}
	var graph *dependency.Graph // empty if no graph is known
	if n != nil {
		graph = n.graph
	}
	return graph.Chain(dependency.PolicyRef(namespace, name), source)
}
