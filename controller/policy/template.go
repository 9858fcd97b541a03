package policy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/controller/apply"
	"github.com/opgate/opgate/controller/policy/watches"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/snapshot"
)

// retryDelay is the requeue delay if another client was changing the object.
const retryDelay = time.Second

// state is the state of Policies between two reconciliations. It may be lost: without it each template is written once
// more, which changes nothing. The zero value is ready for use.
type state struct{ sync.Map }

// policyState is the state of one Policy. Only one worker at a time reconciles a Policy.
type policyState struct {
	uid       types.UID
	templates map[dependency.Ref]*templateState
	// cycle is the one that the Policy was found to be part of.
	cycle []dependency.Ref
}

// templateState is the state of one template.
type templateState struct {
	written written
	// contested is set if an object exists that could not be created: it is watched, to determine its owner.
	contested bool
}

// written is the state of an object after it was written, and what it was written from.
type written struct {
	uid        types.UID
	generation int64
	metadata   hash
	desired    hash
}

// policy returns the state of a Policy; empty if the UID differs.
func (m *state) policy(key types.NamespacedName, uid types.UID) *policyState {
	if known, ok := m.Load(key); ok && known.(*policyState).uid == uid {
		return known.(*policyState)
	}
	p := &policyState{uid: uid, templates: map[dependency.Ref]*templateState{}}
	m.Store(key, p)
	return p
}

// keep drops the state of all objects that neither have a template nor exist.
func (p *policyState) keep(templates map[dependency.Ref]bool, live map[dependency.Ref]*unstructured.Unstructured) {
	for ref := range p.templates {
		if !templates[ref] && live[ref] == nil {
			delete(p.templates, ref)
		}
	}
}

// template returns the state of the object of a template.
func (p *policyState) template(ref dependency.Ref) *templateState {
	m := p.templates[ref]
	if m == nil {
		m = &templateState{}
		p.templates[ref] = m
	}
	return m
}

// edited reports whether the desired object differs from the one written last; false if that is not known.
func (m *templateState) edited(want *desired) bool {
	return m.written.uid != "" && m.written.desired != want.hash
}

// template decides on one template and carries out the decision.
func (rec *reconciliation) template(ctx context.Context, t *dependency.Template) (dependency.TemplateOutcome, error) {
	m := &templateState{}
	if t.Readable {
		m = rec.state.template(t.Ref)
	}
	applicable, fault, ready := rec.applicable(t)
	in := &dependency.TemplateInput{Template: *t, Mode: rec.PendingGuards, KindFault: fault, Cycle: rec.cycle}
	if applicable {
		in.Results = rec.results(t)
	}
	_, decided := dependency.AllMet(in.Results)
	known := !applicable || ready
	var err error
	if applicable && ready {
		known, err = rec.carryOut(ctx, in, m)
	}
	out := dependency.Decide(*in)
	if out.Unread || !known && (!decided || out.Decision == dependency.DoApply) {
		rec.keepStatus(&out)
	}
	return out, err
}

// keepStatus makes the status of a template what it was before, while its state is not known. Without one of the present
// generation it is stale: an edit is not reported as applied.
func (rec *reconciliation) keepStatus(out *dependency.TemplateOutcome) {
	status := &rec.stored.Object.Status
	for _, detail := range status.Details {
		if detail != nil && detail.TemplateMeta.Name == out.Template && detail.ComplianceState != "" &&
			status.ObservedGeneration == rec.stored.Generation {
			out.State, out.Message, out.Unread = dependency.State(detail.ComplianceState), "", true
			return
		}
	}
	rec.stale = true
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
	switch dependency.Decide(*in).Decision {
	case dependency.DoKeep, dependency.DoWait, dependency.DoFault:
		return true, nil
	case dependency.DoApply:
		err = rec.apply(ctx, want, kind, in.Template.Version, m, live, "")
	case dependency.DoSuspend:
		err = rec.apply(ctx, want, kind, in.Template.Version, m, live, rec.key.String())
	case dependency.DoDelete:
		if err = rec.delete(ctx, kind, m, live); err == nil {
			in.Live = nil
		}
	}
	if now := rec.live[in.Template.Ref]; now != nil {
		in.Live = dependency.LiveOf(now.Object, rec.read)
	}
	in.Edited = want != nil && m.edited(want)
	var refused refusal
	switch {
	case errors.As(err, &refused):
		in.WriteFault = string(refused)
		return true, err
	case errors.Is(err, errOutdated):
		return false, nil
	}
	return err == nil, err
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
		case observed.Reason == dependency.NotRead:
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

// apply brings the object of a template to the desired state. Pending is the mark of a suspended policy, "" for none.
func (rec *reconciliation) apply(
	ctx context.Context, want *desired, kind *snapshot.Definition, version string, m *templateState,
	live *unstructured.Unstructured, pending string,
) error {
	verb := apply.Create
	if live != nil {
		if live.GetDeletionTimestamp() != nil || // it is recreated after its deletion
			m.written == want.asWritten(live, rec.stored.Object) && live.GetAnnotations()[metakey.Pending] == pending {
			return nil
		}
		verb = apply.Update
	}
	if !kind.Namespaced {
		if done, err := rec.setFinalizer(ctx, rec.stored, true); err != nil || !done {
			rec.stale = true // the Policy has changed
			return cmp.Or(err, errOutdated)
		}
	}
	answer, err := rec.attempt(ctx, verb, kind, version, want.onto(live, rec.stored.Object, pending), m)
	if answer != nil {
		m.written, m.contested = want.asWritten(answer, rec.stored.Object), false
	}
	return err
}

// delete deletes the object of a template.
func (rec *reconciliation) delete(
	ctx context.Context, kind *snapshot.Definition, m *templateState, live *unstructured.Unstructured,
) error {
	answer, err := rec.attempt(ctx, apply.Delete, kind, live.GroupVersionKind().Version, live, m)
	if answer != nil {
		m.written = written{}
	}
	var refused refusal
	if errors.As(err, &refused) { // no state of a template reports it: the template is pending or was removed
		rec.report(rec.stored, []dependency.Event{{Warning: true, Message: refused.Error()}}, string(live.GetUID()))
	}
	return err
}

// attempt writes, and returns the object after the write, nil if it was not written.
func (rec *reconciliation) attempt(
	ctx context.Context, verb string, kind *snapshot.Definition, version string, object *unstructured.Unstructured,
	m *templateState,
) (*unstructured.Unstructured, error) {
	answer, err := rec.write(ctx, rec.key, verb, kind, version, object)
	if answer != nil {
		rec.live = rec.watches.Owned(rec.key)
		return answer, err
	}
	err = classify(verb, dependency.RefOf(object), kind, err)
	if errors.Is(err, errExists) {
		m.contested = true
		rec.follow(rec.targets())
	}
	if errors.Is(err, errOutdated) {
		rec.again(retryDelay) // also where the object is deleted before the watch starts
	}
	return nil, err
}
