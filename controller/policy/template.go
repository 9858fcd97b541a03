package policy

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/opgate/opgate/controller/policy/watches"
	"github.com/opgate/opgate/rules/dependency"
)

// soon is the requeue delay if another client was changing the object.
const soon = time.Second

// template decides on one template and carries out the decision.
func (l *look) template(ctx context.Context, t *dependency.Template) (dependency.TemplateOutcome, error) {
	m := &templateMemory{}
	if t.Readable {
		m = l.memory.template(t.Ref)
	}
	kind, served := l.watches.Kinds().Lookup(t.Ref.Group, t.Ref.Kind)
	in := &dependency.TemplateInput{Policy: l.read, Template: *t, Mode: l.PendingGuards, KindFault: l.unverified(t)}
	known := true
	if t.Readable && t.Fault == "" && in.KindFault == "" {
		known = l.judgeKind(in, kind, served)
	}
	applicable := l.applicable(t)
	if applicable {
		in.Findings = l.findings(t)
	}
	met, decided := dependency.Settled(in.Findings)
	if decided && applicable {
		m.damping, in.Damped = m.damping.Next(l.now, met, dependency.DampingKey(l.read, in.Findings))
		l.again(in.Damped)
	}
	in.Damping = m.damping
	if !met {
		in.Cycle = l.circle()
	}
	var err error
	if t.Readable && in.KindFault == "" && known {
		known, err = l.carryOut(ctx, in, kind, m)
	}
	out := dependency.Decide(*in)
	switch {
	case !known && (!decided || out.Decision == dependency.DoApply):
		l.asBefore(&out)
	case out.Unread && l.patient():
		l.stale = true
	}
	return out, err
}

// judgeKind determines why no object of the template's kind can be created, if so, and reports whether the existing objects are known.
func (l *look) judgeKind(in *dependency.TemplateInput, kind watches.Kind, served bool) (known bool) {
	ref := in.Template.Ref
	ready, forbidden := l.watches.Template(ref.Group, ref.Kind)
	in.KindFault = kindFault(&in.Template, kind, served, l.Gatekeeper, forbidden)
	switch {
	case in.KindFault != "" || ready:
		return true
	case l.patient():
		return false
	}
	in.KindFault = fmt.Sprintf("%s: what there is of its kind could not be read yet", ref)
	return true
}

// asBefore makes the status of a template what it was before, while its state is not known. Without one it is stale.
func (l *look) asBefore(out *dependency.TemplateOutcome) {
	for _, detail := range l.stored.Object.Status.Details {
		if detail != nil && detail.TemplateMeta.Name == out.Template {
			out.State, out.Message, out.Unread = dependency.State(detail.ComplianceState), "", true
			return
		}
	}
	l.stale = true
}

// patient reports whether it is too early to report that something has not been read: the read is in progress.
func (l *look) patient() bool {
	l.unread = true
	if l.memory.unread.IsZero() {
		l.memory.unread = l.now
	}
	left := patience - l.now.Sub(l.memory.unread)
	l.again(left)
	return left > 0
}

// carryOut finds the object of a template, decides, and carries out the decision. What failed, and what exists afterwards, is
// input of the next decision; known reports whether the state is complete.
func (l *look) carryOut(ctx context.Context, in *dependency.TemplateInput, kind watches.Kind, m *templateMemory) (known bool, err error) {
	live, known := l.find(in, m)
	if !known {
		return false, nil
	}
	want, err := desire(l.stored.Object, l.stored.Object.Spec.PolicyTemplates[in.Template.Index], kind.Namespaced)
	if err != nil {
		in.WriteFault = err.Error()
	} else {
		in.Edited = m.edited(want)
	}
	var did result
	switch dependency.Decide(*in).Decision {
	case dependency.DoKeep, dependency.DoWait, dependency.DoFault:
		return true, nil
	case dependency.DoApply:
		did = l.apply(ctx, want, kind, in.Template.Version, m, live, "")
	case dependency.DoSuspend:
		did = l.apply(ctx, want, kind, in.Template.Version, m, live, l.key.String())
	case dependency.DoDelete:
		did = l.delete(ctx, kind, m, live)
	}
	if did.fault != "" {
		in.WriteFault = did.fault
	}
	if now := l.live[in.Template.Ref]; now != nil {
		in.Live = dependency.LiveOf(now.Object, l.read)
	} else if did.answer != nil {
		in.Live = nil
	}
	in.Edited = want != nil && m.edited(want)
	return !did.outdated, did.err
}

// find returns the object of a template, and whether it is known to exist or not. It may belong to another owner.
func (l *look) find(in *dependency.TemplateInput, m *templateMemory) (live *unstructured.Unstructured, known bool) {
	ref := in.Template.Ref
	live = l.live[ref]
	if live == nil && m.contested {
		target := watches.Target{Ref: ref, Version: in.Template.Version}
		switch observed := l.watches.Observe(target); {
		case l.budget.beyond(l.key, ref):
			in.WriteFault = fmt.Sprintf("%s exists already, and whose it is cannot be read: %s", ref, dependency.DefaultLimits.BeyondText())
		case observed.Found():
			live = l.watches.Object(target)
		case observed.Reason == dependency.NotRead && l.patient():
			return nil, false
		case observed.Reason != dependency.NotFound:
			in.WriteFault = fmt.Sprintf("%s exists already, and whose it is cannot be read: %s", ref, observed.Detail)
		}
	}
	if live != nil {
		in.Live = dependency.LiveOf(live.Object, l.read)
	}
	return live, true
}

// result is the result of a write of an object.
type result struct {
	// answer is the object after the write, nil if it was not written.
	answer *unstructured.Unstructured
	// fault is why it could not be written, err is an error to retry at once.
	fault string
	err   error
	// outdated is set if something has changed in the meantime.
	outdated bool
}

// apply brings the object of a template to the desired state. Pending is the mark of a suspended policy, "" for none.
func (l *look) apply(ctx context.Context, want *desired, kind watches.Kind, version string, m *templateMemory, live *unstructured.Unstructured, pending string) result {
	if live != nil && live.GetDeletionTimestamp() != nil {
		return result{} // it is recreated after its deletion
	}
	verb, object := create, want.suspended(pending)
	asked := m.written.desired == want.hash // by an earlier write that was answered
	if live != nil {
		now, err := want.asWritten(live, l.stored.Object)
		if err != nil {
			return result{fault: err.Error()}
		}
		same := live.GetAnnotations()[dependency.AnnotationPending] == pending
		if m.written == now && same {
			m.trouble = nil
			return result{}
		}
		verb, object, asked = update, want.onto(live, l.stored.Object, pending), asked && same
	}
	if wait := m.drift.wait(l.now); asked && wait > 0 { // another client keeps changing it
		l.again(wait)
		return result{}
	}
	if !kind.Namespaced {
		if held, err := l.hold(ctx, l.stored, true); err != nil || !held {
			l.stale = true // the Policy has changed
			return result{err: err, outdated: true}
		}
	}
	did := l.attempt(ctx, verb, kind, version, object, m)
	if did.answer != nil {
		if asked {
			m.drift = m.drift.again(l.now)
		}
		m.contested = false
		var err error
		if m.written, err = want.asWritten(did.answer, l.stored.Object); err != nil {
			return result{fault: err.Error()}
		}
	}
	return did
}

// delete deletes the object of a template.
func (l *look) delete(ctx context.Context, kind watches.Kind, m *templateMemory, live *unstructured.Unstructured) result {
	if live == nil || live.GetDeletionTimestamp() != nil {
		return result{}
	}
	before := m.trouble
	did := l.attempt(ctx, remove, kind, live.GroupVersionKind().Version, live, m)
	if did.answer != nil {
		m.written = written{}
	}
	if did.fault != "" && (before == nil || before.text != did.fault) {
		// No state of a template reports it: the template is pending or was removed.
		log.FromContext(ctx).Info("object cannot be deleted", "policy", l.key, "fault", did.fault)
		l.report(ctx, l.stored, []dependency.Event{{Warning: true, Message: did.fault}})
	}
	return did
}

// attempt writes, unless the same write failed before and its backoff has not expired.
func (l *look) attempt(ctx context.Context, verb string, kind watches.Kind, version string, object *unstructured.Unstructured, m *templateMemory) result {
	this, err := attemptOf(verb, object)
	if err != nil {
		return result{fault: err.Error()}
	}
	if blocked, wait := m.trouble.blocks(this, l.now); blocked {
		l.again(wait)
		return result{fault: m.trouble.text}
	}
	answer, err := l.write(ctx, l.key, verb, kind, version, object)
	if answer != nil {
		m.trouble, l.live = nil, l.owned(l.key)
		return result{answer: answer, err: err}
	}
	means := classify(err)
	switch means {
	case retried:
		l.again(soon)
		return result{outdated: true}
	case contested:
		m.contested = true
		l.follow(l.targets())
		l.again(soon) // the object with that name may be deleted before the watch starts
		return result{outdated: true}
	case refused, denied, failed:
	}
	m.trouble = m.trouble.next(this, means, writeFault(verb, refOf(object), kind, err), l.now)
	if means != failed {
		_, wait := m.trouble.blocks(this, l.now)
		l.again(wait)
		err = nil
	}
	return result{fault: m.trouble.text, err: err}
}

func attemptOf(verb string, object *unstructured.Unstructured) (attempt, error) {
	this := attempt{verb: verb, uid: object.GetUID(), generation: object.GetGeneration()}
	if verb == remove {
		return this, nil
	}
	unversioned := object.DeepCopy()
	unversioned.SetResourceVersion("") // a status update is no reason to retry
	var err error
	this.object, err = hashOf(unversioned.Object)
	return this, err
}
