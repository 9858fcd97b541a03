package constraint

import "sync"

// work is one item of the queue.
type work struct {
	kind workKind
	// name is the name of the namespace or of the Constraint.
	name string
}

type workKind string

const (
	// everything stands for all namespaces and all statuses, statuses for all of these.
	everything workKind = "everything"
	statuses   workKind = "statuses"
	namespace  workKind = "namespace"
	status     workKind = "status"
	// resync stands for a namespace that OLM should resolve again.
	resync workKind = "resync"
)

// writeErrors records why the virtual operator of a Constraint cannot be written in a namespace. The zero value is
// ready for use.
type writeErrors struct {
	mu sync.Mutex
	in map[string]map[string]string // Constraint, namespace, reason
}

// set records why the virtual operator of a Constraint cannot be written in a namespace, "" for no problem, and reports
// whether that is a change.
func (e *writeErrors) set(constraint, namespace, reason string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.in[constraint][namespace] == reason {
		return false
	}
	if reason == "" {
		delete(e.in[constraint], namespace)
		return true
	}
	if e.in == nil {
		e.in = map[string]map[string]string{}
	}
	if e.in[constraint] == nil {
		e.in[constraint] = map[string]string{}
	}
	e.in[constraint][namespace] = reason
	return true
}

// of returns the number of namespaces with problems, by reason.
func (e *writeErrors) of(constraint string) map[string]int {
	e.mu.Lock()
	defer e.mu.Unlock()
	counts := map[string]int{}
	for _, reason := range e.in[constraint] {
		counts[reason]++
	}
	return counts
}

// forget drops the entries of deleted Constraints.
func (e *writeErrors) forget(exists func(constraint string) bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for name := range e.in {
		if !exists(name) {
			delete(e.in, name)
		}
	}
}
