// Package events sends Kubernetes events on the objects that Opgate decides about. Recording never blocks and never
// calls out, so that the request path may do it; sending is asynchronous and best effort. An event is sent once for
// each reason, not for each time that the same reason is given, and nothing is sent at rest.
//
// It sends through the sink of k8s.io/client-go/tools/events, without the broadcaster of that package, for reasons in
// docs/decisions/2026-11-22-events.md.
package events

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/opgate/opgate/internal/text"
)

// Reasons of events on InstallPlans, Subscriptions and OperatorPolicies.
const (
	// Held is on a plan that the loop does not approve.
	Held = "Held"
	// Stale is on a plan that the loop has deleted, since it could not be what its Subscriptions ask for any more.
	Stale = "Stale"
	// Denied is on an object of which a write was refused.
	Denied = "Denied"
	// Unreadable is on an OperatorPolicy that does not decode, or does not show what it governs.
	Unreadable = "Unreadable"
	// Approved is on a plan that the loop or a user has approved.
	Approved = "Approved"
	// NotOLM is on a Subscription or a plan of which a user that is not configured as OLM writes what OLM writes.
	NotOLM = "NotOLM"
	// WebhookRestored is on a webhook configuration of which another client had changed fields.
	WebhookRestored = "WebhookRestored"
	// ExceptionEndsSoon and ExceptionEnded are on an OperatorPolicy or a Constraint with such an exception.
	ExceptionEndsSoon = "ExceptionEndsSoon"
	ExceptionEnded    = "ExceptionEnded"
	// TableFull is on an OperatorPolicy for which a bounded table has no room.
	TableFull = "TableFull"
	// Overridden is on a plan that a user has approved although it is refused.
	Overridden = "Overridden"
)

// Actions of events.
const (
	Approve = "Approve"
	Update  = "Update"
	Restore = "Restore"
	Delete  = "Delete"
	Install = "Install"
)

const (
	// maxNote is the maximum length of the note of an event in the API, in bytes.
	maxNote = 1024
	// maxInstance is the maximum length of the name of the reporting process, in bytes.
	maxInstance = 128
	// maxPrefix bounds the part of the object's name in the name of an event, in bytes: a dot and a digest follow, of
	// at most 253.
	maxPrefix = 253 - 1 - 2*digestSize
	// digestSize is the number of bytes of a digest in the name of an event.
	digestSize = 10
	// component is the name of the reporting controller.
	component = "opgate"
)

// Event is what is reported on an object.
type Event struct {
	// Regarding is the object, with its UID. Events of cluster-scoped objects are in namespace default.
	Regarding corev1.ObjectReference
	// Related is the policy that decided, nil for none.
	Related *corev1.ObjectReference
	// Reason and Action are words for machines: why the action was taken or refused, and which.
	Reason, Action string
	// Warning makes it a Warning, else it is Normal.
	Warning bool
	// Note is the text for people. It may be of any size and in any bytes.
	Note string
	// Occurrence distinguishes events that say the same and are worth one each. Default: they are one event.
	Occurrence string
}

// name returns the name of an event: that of the object, and a digest that is the same on all replicas and after
// restarts, so that a repetition is refused by the API server as one that exists already.
func (e *Event) name() string {
	hash := sha256.New()
	for _, part := range []string{string(e.Regarding.UID), e.Reason, e.Action, e.Note, e.Occurrence} {
		_, _ = fmt.Fprintf(hash, "%d:%s", len(part), part) // hashes return no errors
	}
	prefix := strings.TrimRight(e.Regarding.Name[:min(len(e.Regarding.Name), maxPrefix)], "-.")
	return prefix + "." + hex.EncodeToString(hash.Sum(nil)[:digestSize])
}

// object returns the event as it is sent.
func (e *Event) object(name, instance string, now time.Time) *eventsv1.Event {
	kind := corev1.EventTypeNormal
	if e.Warning {
		kind = corev1.EventTypeWarning
	}
	namespace := e.Regarding.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	return &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: namespace, Name: name},
		EventTime:           metav1.NewMicroTime(now),
		ReportingController: component,
		ReportingInstance:   instance[:min(len(instance), maxInstance)],
		Action:              e.Action,
		Reason:              e.Reason,
		Regarding:           e.Regarding,
		Related:             e.Related,
		Note:                text.Truncate(e.Note, maxNote),
		Type:                kind,
	}
}

// Exceptions records an event on a policy or a Constraint for each of its exceptions that ends soon or has ended. Each
// is a clause.
func (r *Recorder) Exceptions(regarding corev1.ObjectReference, ending, ended []string) {
	for _, part := range []struct {
		reason string
		notes  []string
	}{{ExceptionEndsSoon, ending}, {ExceptionEnded, ended}} {
		for _, note := range part.notes {
			r.Record(Event{Regarding: regarding, Reason: part.reason, Action: Update, Warning: true, Note: note})
		}
	}
}
