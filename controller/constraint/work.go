package constraint

import (
	"sync"

	"k8s.io/client-go/util/workqueue"
)

type queue = workqueue.TypedRateLimitingInterface[work]

// work is one item of the queue.
type work struct {
	subject subject
	// name is the name of the namespace or of the Constraint.
	name string
}

type subject string

const (
	// everything stands for all namespaces and all statuses, statuses for all of these.
	everything subject = "everything"
	statuses   subject = "statuses"
	namespace  subject = "namespace"
	status     subject = "status"
	// nudge stands for a namespace that OLM should resolve again.
	nudge subject = "nudge"
)

// troubles records why the virtual operator of a Constraint cannot be written in a namespace. The zero value is ready for
// use.
type troubles struct {
	mu sync.Mutex
	in map[string]map[string]string // Constraint, namespace, reason
}

// set records why the virtual operator of a Constraint cannot be written in a namespace, "" for no problem, and reports
// whether that is a change.
func (t *troubles) set(constraint, namespace, reason string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.in[constraint][namespace] == reason {
		return false
	}
	if reason == "" {
		delete(t.in[constraint], namespace)
		return true
	}
	if t.in == nil {
		t.in = map[string]map[string]string{}
	}
	if t.in[constraint] == nil {
		t.in[constraint] = map[string]string{}
	}
	t.in[constraint][namespace] = reason
	return true
}

// of returns the number of namespaces with problems, by reason.
func (t *troubles) of(constraint string) map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	counts := map[string]int{}
	for _, reason := range t.in[constraint] {
		counts[reason]++
	}
	return counts
}

// forget drops the entries of deleted Constraints.
func (t *troubles) forget(exists func(constraint string) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name := range t.in {
		if !exists(name) {
			delete(t.in, name)
		}
	}
}
