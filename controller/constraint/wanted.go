package constraint

import (
	"reflect"
	"sync"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	"github.com/opgate/opgate/controller/constraint/virtual"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/snapshot"
)

// wanted caches the virtual operators that the Constraints of a snapshot require. They are built once for all
// namespaces, and rebuilt only for Constraints that changed. The zero value is ready for use.
type wanted struct {
	// missing is why no virtual operator may be written; empty if it may.
	missing   string
	mu        sync.Mutex
	current   *snapshot.Snapshot
	automatic []olm.Property
	made      map[string]madeOperator // by Constraint
	operators []*virtual.Operator
}

// madeOperator is a virtual operator, nil if the Constraint requires none, and what it was built from.
type madeOperator struct {
	object     *constraintv1.Constraint
	definition *constraint.Definition
	operator   *virtual.Operator
}

// by returns the virtual operators that the Constraints of a snapshot require, sorted by Constraint.
func (w *wanted) by(current *snapshot.Snapshot) []*virtual.Operator {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.current == current {
		return w.operators
	}
	automatic := virtual.Automatic(current.Constraints())
	last := w.made
	if !reflect.DeepEqual(automatic, w.automatic) {
		last = nil
	}
	w.current, w.automatic, w.made, w.operators = current, automatic, map[string]madeOperator{}, nil
	for _, object := range current.ConstraintObjects() {
		_, definition := find(current, object.Name)
		if definition == nil {
			continue
		}
		m := last[object.Name]
		if m.object != object || m.definition != definition {
			m = madeOperator{object, definition, virtual.Of(object, definition, automatic)}
			if m.operator != nil && m.operator.Problem == nil && w.missing != "" {
				m.operator.Problem = &virtual.Problem{Reason: virtual.ReasonNotGranted, Message: w.missing}
			}
		}
		w.made[object.Name] = m
		if m.operator != nil {
			w.operators = append(w.operators, m.operator)
		}
	}
	return w.operators
}

// of returns the virtual operator that one Constraint requires, nil if it requires none.
func (w *wanted) of(current *snapshot.Snapshot, name string) *virtual.Operator {
	for _, o := range w.by(current) {
		if o.Constraint == name {
			return o
		}
	}
	return nil
}
