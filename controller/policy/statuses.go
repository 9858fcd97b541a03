package policy

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	policyv1 "github.com/opgate/opgate/api/policy/v1"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/snapshot"
)

// eventComponent is the component that Opgate reports in events.
const eventComponent = "opgate"

// status writes the status of the Policy if it differs, and reports what changed.
func (rec *reconciliation) status(ctx context.Context, outcomes []dependency.TemplateOutcome) error {
	if rec.stale {
		return nil
	}
	if !rec.unread {
		rec.state.unread = time.Time{}
	}
	before := rec.stored.Object
	objects := make([]map[string]any, len(outcomes))
	for i := range outcomes {
		if live := rec.live[rec.read.Templates[i].Ref]; live != nil {
			objects[i] = live.Object
		}
	}
	status, events := dependency.NextStatus(dependency.StatusInput{Policy: before, Read: rec.read,
		Excluded: rec.excluded(rec.key.Namespace), Outcomes: outcomes, Objects: objects, Now: rec.now})
	written, err := rec.writer.Status(ctx, snapshot.Policies, snapshot.InCluster(), before, before.Status, status)
	if !written {
		return err
	}
	log.FromContext(ctx).Info("status written", "policy", rec.key.String(), "compliant", status.ComplianceState,
		"pendingDependencies", status.PendingDependencies)
	rec.report(ctx, rec.stored, events)
	return err
}

// report sends events, best effort: the status has all that they say, so a failure is only logged.
func (r *reconciler) report(ctx context.Context, about *storedPolicy, events []dependency.Event) {
	for i, e := range events {
		// Names must differ, also within the resolution of the clock.
		err := r.writer.Event(ctx, eventOf(about, e, r.Now().Add(time.Duration(i)), r.Identity))
		if err != nil && !apierrors.IsAlreadyExists(err) &&
			!apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			log.FromContext(ctx).Error(err, "event not sent", "policy", about.Key().String())
		}
	}
}

// eventOf returns the event object of an event of a Policy.
func eventOf(about *storedPolicy, e dependency.Event, now time.Time, instance string) *corev1.Event {
	at := metav1.NewTime(now)
	kind := corev1.EventTypeNormal
	if e.Warning {
		kind = corev1.EventTypeWarning
	}
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: about.Namespace,
			Name: fmt.Sprintf("%s.%x", about.Name, now.UnixNano())},
		InvolvedObject: corev1.ObjectReference{APIVersion: policyv1.GroupVersion.String(), Kind: policyv1.Kind,
			Namespace: about.Namespace, Name: about.Name,
			UID: about.UID, ResourceVersion: about.ResourceVersion},
		Reason:              dependency.EventReason,
		Action:              dependency.EventReason,
		Message:             e.Message,
		Type:                kind,
		Source:              corev1.EventSource{Component: eventComponent, Host: instance},
		ReportingController: eventComponent,
		ReportingInstance:   instance,
		FirstTimestamp:      at,
		LastTimestamp:       at,
		Count:               1,
	}
}

// reconcileSet writes the status of a PolicySet if it differs.
func (r *reconciler) reconcileSet(ctx context.Context, key types.NamespacedName) error {
	stored := r.Store.Load().PolicySet(key)
	if stored == nil || stored.Read == nil || stored.DeletionTimestamp != nil {
		return nil
	}
	member := func(name string) *dependency.Policy {
		return r.Store.Load().Policy(types.NamespacedName{Namespace: key.Namespace, Name: name}).Known()
	}
	before := stored.Object
	status := dependency.NextSetStatus(stored.Read, &before.Status, member, r.Now())
	if r.excluded(key.Namespace) {
		status = dependency.ExcludedSetStatus(before, r.Now())
	}
	written, err := r.writer.Status(ctx, snapshot.PolicySets, snapshot.InCluster(), before, before.Status, status)
	if written {
		log.FromContext(ctx).Info("status written", "policySet", key.String(), "compliant", status.Compliant)
	}
	return err
}
