package constraint

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	policyv1 "github.com/opgate/opgate/api/policy/v1"
	"github.com/opgate/opgate/controller/constraint/virtual"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/verdict"
	"github.com/opgate/opgate/snapshot"
)

// The reasons of conditions, in addition to those of package virtual.
const (
	reasonValid      = "Valid"
	reasonInvalid    = "Invalid"
	reasonCurrent    = "Current"
	reasonPending    = "Pending"
	reasonNotWritten = "NotWritten"
)

const (
	// maxFaults is the number of faults that a condition lists.
	maxFaults = 3
	// maxMessage limits, in bytes, texts from other objects in a status.
	maxMessage = 1024
	// maxExceptions limits, in bytes, the message on exceptions.
	maxExceptions = 32768
)

// statusInput is everything that the status of a Constraint is computed from.
type statusInput struct {
	// Object is the Constraint with its present status, Definition its parsed form.
	Object     *constraintv1.Constraint
	Definition *constraint.Definition
	// Counts are over Installed operators.
	Counts    []constraintv1.ConstraintCount
	Installed int
	// Violators are the first operators that the Constraint counts as violating.
	Violators []constraintv1.ConstraintViolator
	// Operator is the virtual operator that it requires, or nil.
	Operator *virtual.Operator
	// Wanted is the number of namespaces that should have the virtual operator, Made of those that have one, Missing of
	// those that should have one and do not.
	Wanted, Made, Missing int
	// WriteErrors counts, by reason, the namespaces in which it cannot be written.
	WriteErrors map[string]int
	// Escaped is the number of refused operators that were installed while Opgate was not running.
	Escaped int
	Now     time.Time
}

// evaluate returns the status of a Constraint. Of namespaces it names only those of the first violators: by default
// every user may read Constraints.
func evaluate(in *statusInput) constraintv1.ConstraintStatus {
	next := *in.Object.Status.DeepCopy()
	next.ObservedGeneration = in.Definition.Generation
	next.VirtualOperators, next.Escaped = in.Made, in.Escaped
	set := func(kind string, status metav1.ConditionStatus, reason, message string) {
		meta.SetStatusCondition(&next.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason,
			Message:            message,
			ObservedGeneration: in.Definition.Generation, LastTransitionTime: metav1.NewTime(in.Now)})
	}
	if faults := faultsOf(in.Definition); len(faults) > 0 {
		// the counts stay as they were
		set(constraintv1.ConditionReady, metav1.ConditionFalse, reasonInvalid, faultText(faults))
		next.Compliant = string(policyv1.NonCompliant)
	} else {
		next.EvaluatedGeneration, next.Constraints, next.Violating = in.Definition.Generation, nil, 0
		next.Violators = in.Violators
		unknown := 0
		for i, count := range in.Counts {
			count.Message = text.Truncate(in.Definition.Constraints[i].Message, maxMessage)
			next.Constraints = append(next.Constraints, count)
			next.Violating += count.Violating
			unknown += count.Unknown
		}
		set(constraintv1.ConditionReady, metav1.ConditionTrue, reasonValid, in.summary(next.Violating, unknown))
		next.Compliant = compliantOf(next.Violating, unknown)
	}
	if pending := in.Definition.Pending; pending != "" {
		next.Compliant = string(policyv1.Pending)
		set(dependency.ConditionDependencies, metav1.ConditionFalse, dependency.ReasonDependencyPending,
			cmp.Or(in.Definition.Waits, "the Constraint waits for what Policy "+pending+" depends on")+
				"; until then it holds every installation and upgrade where it applies")
	} else {
		meta.RemoveStatusCondition(&next.Conditions, dependency.ConditionDependencies)
	}
	next.EndedExceptions = in.Definition.Exceptions.Ended(in.Now)
	state := in.Definition.Exceptions.At(in.Now)
	if inForce, reason, clauses := state.Condition(); len(clauses) == 0 {
		meta.RemoveStatusCondition(&next.Conditions, operatorpolicy.ConditionExceptions)
	} else {
		status := metav1.ConditionFalse
		if inForce {
			status = metav1.ConditionTrue
		}
		set(operatorpolicy.ConditionExceptions, status, reason, text.Truncate(strings.Join(clauses, "; "), maxExceptions))
	}
	if in.Operator == nil {
		meta.RemoveStatusCondition(&next.Conditions, constraintv1.ConditionVirtualOperators)
	} else {
		status, reason, message := in.operators()
		set(constraintv1.ConditionVirtualOperators, status, reason, message)
	}
	return next
}

// compliantOf summarizes what is installed, for Policies that depend on the Constraint or apply it. It is unknown if a
// check could not be decided.
func compliantOf(violating, unknown int) string {
	switch {
	case violating > 0:
		return string(policyv1.NonCompliant)
	case unknown > 0:
		return ""
	}
	return string(policyv1.Compliant)
}

// faultsOf returns the faults without the warnings.
func faultsOf(d *constraint.Definition) []constraint.Fault {
	return slices.DeleteFunc(slices.Clone(d.Faults), constraint.Fault.Warning)
}

func faultText(faults []constraint.Fault) string {
	var texts []string
	for _, f := range faults[:min(len(faults), maxFaults)] {
		texts = append(texts, text.Truncate(rules.FaultText(f), maxMessage))
	}
	if more := len(faults) - maxFaults; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return "every installation and upgrade is held until this is corrected: " + strings.Join(texts, "; ")
}

func (in *statusInput) summary(violating, unknown int) string {
	text := count(len(in.Definition.Constraints)+len(in.Definition.OnWrites), "constraint") + ", " +
		count(len(in.Definition.Properties), "property")
	if d := in.Definition.Deletion; d != nil {
		text += ", deletion " + string(d.Action)
	}
	if len(in.Definition.Constraints) == 0 {
		return text
	}
	text += ", " + count(in.Installed, "installed operator") + ", " + count(violating, "violation")
	if unknown > 0 {
		text += fmt.Sprintf(", %d not decided", unknown)
	}
	return text
}

func (in *statusInput) operators() (status metav1.ConditionStatus, reason, message string) {
	if p := in.Operator.Problem; p != nil {
		return metav1.ConditionFalse, p.Reason, text.Truncate(p.Message, maxMessage)
	}
	of := func(n int) string { return fmt.Sprintf("in %d of %s", n, count(in.Wanted, "namespace")) }
	if taken := in.WriteErrors[nameTaken]; taken > 0 {
		return metav1.ConditionFalse, nameTaken, of(taken) + " there is another ClusterServiceVersion " +
			in.Operator.Name +
			", without label " + metakey.VirtualOperator + ", which is left alone: delete or rename it"
	}
	if len(in.WriteErrors) > 0 {
		failed := 0
		for _, n := range in.WriteErrors {
			failed += n
		}
		return metav1.ConditionFalse, reasonNotWritten, of(failed) + " ClusterServiceVersion " + in.Operator.Name +
			" could not be written, it is tried again: " +
			strings.Join(slices.Sorted(maps.Keys(in.WriteErrors)), ", ")
	}
	if in.Missing > 0 {
		return metav1.ConditionFalse, reasonPending, of(in.Missing) + " ClusterServiceVersion " + in.Operator.Name +
			" is still to be made"
	}
	if in.Wanted == 0 {
		return metav1.ConditionTrue, reasonCurrent,
			"the selector names no namespace with a Subscription, so OLM is shown the properties nowhere"
	}
	return metav1.ConditionTrue, reasonCurrent, "the selector names " + count(in.Wanted, "namespace") +
		" with Subscriptions, and OLM is shown the properties there"
}

// count returns a number with its unit, such as 2 properties.
func count(n int, what string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(what, "y"):
		what = strings.TrimSuffix(what, "y") + "ies"
	default:
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// tallies caches the counts of one snapshot, so that all statuses are computed from one count. The zero value is ready
// for use.
type tallies struct {
	mu      sync.Mutex
	current *snapshot.Snapshot
	tally   *rules.Tally
	// until is when the first exception ends that is counted; zero for none.
	until time.Time
	// made are the namespaces with a virtual operator, by Constraint.
	made map[string]map[string]bool
}

func (t *tallies) of(current *snapshot.Snapshot, now time.Time) *rules.Tally {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count(current, now)
	return t.tally
}

// madeFor returns the namespaces with a virtual operator of a Constraint.
func (t *tallies) madeFor(current *snapshot.Snapshot, now time.Time, name string) map[string]bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count(current, now)
	return t.made[name]
}

func (t *tallies) count(current *snapshot.Snapshot, now time.Time) {
	if t.current == current && (t.until.IsZero() || now.Before(t.until)) {
		return
	}
	t.current, t.tally, t.made = current, rules.NewTally(current.All(), now), map[string]map[string]bool{}
	t.until = time.Time{}
	for _, d := range current.Constraints().Definitions() {
		if end := d.Exceptions.End(now); !end.IsZero() && (t.until.IsZero() || end.Before(t.until)) {
			t.until = end
		}
	}
	for o := range current.AllObjects(snapshot.ClusterServiceVersions) {
		if !o.VirtualOperator() || o.DeletionTimestamp != nil {
			continue
		}
		name := virtual.ConstraintOf(written(o.CSV()))
		if t.made[name] == nil {
			t.made[name] = map[string]bool{}
		}
		t.made[name][o.Namespace] = true
	}
}

// reconcileStatus writes the status of a Constraint if it differs. It leaves the status unchanged until the cluster
// version is known, since the counts depend on it. After is the delay until the time alone changes it, 0 for never.
func (r *Controller) reconcileStatus(
	ctx context.Context, current *snapshot.Snapshot, name string,
) (after time.Duration, err error) {
	object, definition := find(current, name)
	if object == nil || current.Facts().Version == "" || object.ResourceVersion == "" {
		return 0, nil // or it does not decode, so that its present status is not known; the feed has logged it
	}
	now := r.Now()
	tally := r.tallies.of(current, now)
	in := &statusInput{Object: object, Definition: definition, Counts: tally.Of(definition), Installed: tally.Installed,
		Violators: tally.Violators(definition),
		Operator:  r.wanted.of(current, name), WriteErrors: r.writeErrors.of(name),
		Escaped: r.Escaped(name), Now: now}
	r.countOperators(current, in)
	next := evaluate(in)
	written, err := r.Writer.Status(ctx, snapshot.Constraints, snapshot.InCluster(), object, object.Status, next)
	if written {
		log.FromContext(ctx).Info("status written", "constraint", name, "violating", next.Violating,
			"virtualOperators", next.VirtualOperators)
	}
	r.reportExceptions(object, definition, now)
	if next := definition.Exceptions.Next(now); !next.IsZero() {
		after = next.Sub(now)
	}
	return after, err
}

// reportExceptions records events on the exceptions of a Constraint.
func (r *Controller) reportExceptions(
	object *constraintv1.Constraint, definition *constraint.Definition, now time.Time,
) {
	state := definition.Exceptions.At(now)
	regarding := verdict.PolicyRef{Kind: verdict.KindConstraint, Name: object.Name}.Reference()
	regarding.UID = object.UID
	r.Events.Exceptions(*regarding, state.Ending, state.Ended)
}

// countOperators counts the virtual operators of a Constraint.
func (r *Controller) countOperators(current *snapshot.Snapshot, in *statusInput) {
	made := r.tallies.madeFor(current, in.Now, in.Object.Name)
	in.Made = len(made)
	if in.Operator == nil {
		return
	}
	for ns := range current.All() {
		if ns.Deleting() || !ns.Exists() || !in.Operator.WantedIn(ns) {
			continue
		}
		in.Wanted++
		if !made[ns.Name()] {
			in.Missing++
		}
	}
}
