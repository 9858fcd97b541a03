package policy

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/opgate/opgate/controller/policy/watches"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/snapshot"
)

// retryDelay is the requeue delay if another client was changing the object.
const retryDelay = time.Second

// template decides on one template and carries out the decision.
func (rec *reconciliation) template(ctx context.Context, t *dependency.Template) (dependency.TemplateOutcome, error) {
	m := newTemplateState()
	if t.Readable {
		m = rec.state.template(t.Ref)
	}
	applicable, fault, ready := rec.applicable(t)
	in := &dependency.TemplateInput{Template: *t, Mode: rec.PendingGuards, KindFault: fault}
	known := true
	if applicable {
		in.Results = rec.results(t)
		if known = ready || !rec.withinGrace(); !ready && known {
			in.KindFault = fmt.Sprintf("%s: what there is of its kind could not be read yet", t.Ref)
		}
	}
	met, decided := dependency.AllMet(in.Results)
	if !met {
		in.Cycle = rec.circle()
	}
	var err error
	if applicable && in.KindFault == "" && known {
		known, err = rec.carryOut(ctx, in, m)
	}
	out := dependency.Decide(*in)
	switch {
	case !known && (!decided || out.Decision == dependency.DoApply):
		rec.keepStatus(&out)
	case out.Unread && rec.withinGrace():
		rec.stale = true
	}
	return out, err
}

// keepStatus makes the status of a template what it was before, while its state is not known. Without one it is stale.
func (rec *reconciliation) keepStatus(out *dependency.TemplateOutcome) {
	for _, detail := range rec.stored.Object.Status.Details {
		if detail != nil && detail.TemplateMeta.Name == out.Template {
			out.State, out.Message, out.Unread = dependency.State(detail.ComplianceState), "", true
			return
		}
	}
	rec.stale = true
}

// withinGrace reports whether it is too early to report that something has not been read: the read is in progress.
func (rec *reconciliation) withinGrace() bool {
	rec.unread = true
	if rec.state.unread.IsZero() {
		rec.state.unread = rec.now
	}
	left := gracePeriod - rec.now.Sub(rec.state.unread)
	rec.again(left)
	return left > 0
}

// carryOut finds the object of a template, decides, and carries out the decision. What failed, and what exists
// afterwards, is input of the next decision; known reports whether the state is complete.
func (rec *reconciliation) carryOut(
	ctx context.Context, in *dependency.TemplateInput, m *templateState,
) (known bool, err error) {
	live, known := rec.find(in, m)
	if !known {
		return false, nil
	}
	kind := rec.watches.Lookup(in.Template.Ref.Group, in.Template.Ref.Kind)
	want, err := desire(rec.stored.Object, rec.stored.Object.Spec.PolicyTemplates[in.Template.Index], kind.Namespaced)
	if err != nil {
		in.WriteFault = err.Error()
	} else {
		in.Edited = m.edited(want)
	}
	var did writeResult
	switch dependency.Decide(*in).Decision {
	case dependency.DoKeep, dependency.DoWait, dependency.DoFault:
		return true, nil
	case dependency.DoApply:
		did = rec.apply(ctx, want, kind, in.Template.Version, m, live, "")
	case dependency.DoSuspend:
		did = rec.apply(ctx, want, kind, in.Template.Version, m, live, rec.key.String())
	case dependency.DoDelete:
		did = rec.delete(ctx, kind, m, live)
	}
	if did.fault != "" {
		in.WriteFault = did.fault
	}
	if now := rec.live[in.Template.Ref]; now != nil {
		in.Live = dependency.LiveOf(now.Object, rec.read)
	} else if did.answer != nil {
		in.Live = nil
	}
	in.Edited = want != nil && m.edited(want)
	return !did.outdated, did.err
}

// find returns the object of a template, and whether it is known to exist or not. It may belong to another owner.
func (rec *reconciliation) find(
	in *dependency.TemplateInput, m *templateState,
) (live *unstructured.Unstructured, known bool) {
	ref := in.Template.Ref
	live = rec.live[ref]
	if live == nil && m.contested {
		target := watches.Target{Ref: ref, Version: in.Template.Version}
		switch observed := rec.watches.Observe(rec.key, target); {
		case observed.Found():
			live = rec.watches.Object(target)
		case observed.Reason == dependency.NotRead && rec.withinGrace():
			return nil, false
		case observed.Reason != dependency.NotFound:
			in.WriteFault = fmt.Sprintf("%s exists already, and whose it is cannot be read: %s", ref, observed.Detail)
		}
	}
	if live != nil {
		in.Live = dependency.LiveOf(live.Object, rec.read)
		// It is still the Policy's if only its labels and owners were removed.
		in.Live.Ours = in.Live.Ours || in.Live.Owner == nil &&
			(m.written.uid == live.GetUID() || in.Template.WasSuspended())
	}
	return live, true
}

// writeResult is the result of a write of an object.
type writeResult struct {
	// answer is the object after the write, nil if it was not written.
	answer *unstructured.Unstructured
	// fault is why it could not be written, err is an error to retry at once.
	fault string
	err   error
	// outdated is set if something has changed in the meantime.
	outdated bool
}

// apply brings the object of a template to the desired state. Pending is the mark of a suspended policy, "" for none.
func (rec *reconciliation) apply(
	ctx context.Context, want *desired, kind *snapshot.Definition, version string, m *templateState,
	live *unstructured.Unstructured, pending string,
) writeResult {
	if live != nil && live.GetDeletionTimestamp() != nil {
		return writeResult{} // it is recreated after its deletion
	}
	this, object := attempt{verb: create, desired: want.hash, pending: pending}, want.suspended(pending)
	asked := m.written.desired == want.hash // by an earlier write that was answered
	if live != nil {
		now, err := want.asWritten(live, rec.stored.Object)
		if err != nil {
			return writeResult{fault: err.Error()}
		}
		same := live.GetAnnotations()[metakey.Pending] == pending
		if m.written == now && same {
			m.writeError = nil
			return writeResult{}
		}
		this.verb, this.uid, this.generation = update, live.GetUID(), live.GetGeneration()
		object, asked = want.replacement(live, rec.stored.Object, pending), asked && same
	}
	if asked && m.corrections.TokensAt(rec.now) < 1 { // another client keeps changing it
		rec.again(correctionPeriod)
		return writeResult{}
	}
	if !kind.Namespaced {
		if done, err := rec.setFinalizer(ctx, rec.stored, true); err != nil || !done {
			rec.stale = true // the Policy has changed
			return writeResult{err: err, outdated: true}
		}
	}
	did := rec.attempt(ctx, this, kind, version, object, m)
	if did.answer != nil {
		if asked {
			m.corrections.AllowN(rec.now, 1)
		}
		m.contested = false
		var err error
		if m.written, err = want.asWritten(did.answer, rec.stored.Object); err != nil {
			return writeResult{fault: err.Error()}
		}
	}
	return did
}

// delete deletes the object of a template.
func (rec *reconciliation) delete(
	ctx context.Context, kind *snapshot.Definition, m *templateState, live *unstructured.Unstructured,
) writeResult {
	if live == nil || live.GetDeletionTimestamp() != nil {
		return writeResult{}
	}
	before, this := m.writeError, attempt{verb: remove, uid: live.GetUID(), generation: live.GetGeneration()}
	did := rec.attempt(ctx, this, kind, live.GroupVersionKind().Version, live, m)
	if did.answer != nil {
		m.written = written{}
	}
	if did.fault != "" && (before == nil || before.text != did.fault) {
		// No state of a template reports it: the template is pending or was removed.
		log.FromContext(ctx).Info("object cannot be deleted", "policy", rec.key.String(), "fault", did.fault)
		rec.report(rec.stored, []dependency.Event{{Warning: true, Message: did.fault}})
	}
	return did
}

// attempt writes, unless the same write failed before and its backoff has not expired.
func (rec *reconciliation) attempt(
	ctx context.Context, this attempt, kind *snapshot.Definition, version string, object *unstructured.Unstructured,
	m *templateState,
) writeResult {
	if wait := m.writeError.wait(this, rec.now); wait > 0 {
		rec.again(wait)
		return writeResult{fault: m.writeError.text}
	}
	answer, err := rec.write(ctx, rec.key, this.verb, kind, version, object)
	if answer != nil {
		m.writeError, rec.live = nil, rec.watches.Owned(rec.key)
		return writeResult{answer: answer, err: err}
	}
	means := classify(err)
	switch means {
	case retried:
		rec.again(retryDelay)
		return writeResult{outdated: true}
	case contested:
		m.contested = true
		rec.follow(rec.targets())
		rec.again(retryDelay) // the object with that name may be deleted before the watch starts
		return writeResult{outdated: true}
	case refused, failed:
	}
	m.writeError = m.writeError.next(this, means == refused,
		writeFault(this.verb, dependency.RefOf(object), kind, err), rec.now)
	if means == refused {
		rec.again(m.writeError.pause)
		err = nil
	}
	return writeResult{fault: m.writeError.text, err: err}
}
