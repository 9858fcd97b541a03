package dependency

import (
	"slices"

	"github.com/opgate/opgate/internal/text"
)

// Decision is the action for the object of a template.
type Decision string

// The decisions.
const (
	// DoKeep leaves the object unchanged.
	DoKeep Decision = "Keep"
	// DoApply creates or updates the object, not suspended.
	DoApply Decision = "Apply"
	// DoSuspend creates or updates the object, with metakey.Pending.
	DoSuspend Decision = "Suspend"
	// DoDelete deletes the object.
	DoDelete Decision = "Delete"
	// DoWait does not create the object, which does not exist.
	DoWait Decision = "Wait"
	// DoFault reports a template error and leaves an existing object unchanged.
	DoFault Decision = "Fault"
)

// TemplateInput is the input of Decide.
type TemplateInput struct {
	Template Template
	// Results has one entry per dependency of the template.
	Results []Result
	// Cycle is a cycle that the Policy is part of, for the message.
	Cycle []Ref
	// Mode is what happens to an OperatorPolicy or a Constraint; empty is Suspend.
	Mode PendingGuards
	// Live is nil if the object does not exist.
	Live *Live
	// Edited is set where the template has changed since it was last applied; false if that is not known.
	Edited bool
	// KindFault is why no object of this kind can be created; it takes precedence over dependencies. WriteFault is why
	// the object cannot be written; dependencies take precedence over it.
	KindFault, WriteFault string
}

// TemplateOutcome is the decision on one template and the state to report.
type TemplateOutcome struct {
	Template string
	Decision Decision
	// State is empty if unknown.
	State State
	// Message is "<State>; <text>", empty if the state is unknown.
	Message string
	// Evaluating is set where the state is unknown because the object was not evaluated yet.
	Evaluating bool
	// Unmet are the results of the dependencies that the template waits for.
	Unmet []Result
	// Unread is set where it waits only for dependencies that have not been read yet.
	Unread bool
	// Dependencies is status.details[].dependencies.
	Dependencies string
	// Notified is set where the controller of the object reports the message as an event on the Policy itself.
	Notified bool
}

// Decide decides on one template. A template error that only an edit of the Policy can fix comes first, then unmet
// dependencies, then all other reasons not to apply it.
func Decide(in TemplateInput) TemplateOutcome {
	out := in.decide()
	out.Dependencies = in.dependenciesAfter()
	return out
}

func (in *TemplateInput) decide() TemplateOutcome {
	for _, fault := range []string{in.Template.Fault, in.KindFault} {
		if fault != "" {
			return in.fault(fault)
		}
	}
	met, decided := AllMet(in.Results)
	switch {
	case !decided:
		return in.undecided()
	case !met:
		return in.unmet(PendingText(in.Results, in.Cycle, in.Template.IgnorePending))
	}
	return in.met()
}

// met applies the template, unless something prevents it.
func (in *TemplateInput) met() TemplateOutcome {
	switch live := in.Live; {
	case in.Template.HubError != "":
		return in.fault(in.Template.HubError)
	case in.WriteFault != "":
		return in.fault(in.WriteFault)
	case live != nil && !live.Ours:
		return in.fault(in.foreign())
	case live != nil && live.Deleting:
		// recreated once it is deleted
		return TemplateOutcome{Template: in.Template.Name, Decision: DoKeep, Evaluating: true}
	case live != nil && live.Refused:
		out := in.fault("Gatekeeper has not accepted it: see status.byPod of " + in.Template.Ref.String())
		out.Decision = DoApply
		return out
	}
	out := in.live()
	out.Decision = DoApply
	if in.Live == nil || in.Live.Suspended || in.Edited {
		out.State, out.Message, out.Evaluating = Unknown, "", true // its status predates the edit
	}
	return out
}

// unmet deletes the object or does not create it. An OperatorPolicy or a Constraint
// is suspended and holds approvals: without it nothing would restrict what it governs.
func (in *TemplateInput) unmet(text string) TemplateOutcome {
	out := in.pending(text)
	switch live := in.Live; {
	case in.suspends() && in.WriteFault != "":
		return in.fault(in.WriteFault)
	case in.suspends() && live != nil && !live.Ours:
		return in.fault(in.foreign())
	case in.suspends() && live != nil && live.Deleting:
		out.Decision = DoKeep
	case in.suspends():
		out.Decision = DoSuspend
	case live != nil && live.Ours && !live.Deleting:
		out.Decision = DoDelete
	}
	return out
}

// undecided leaves objects unchanged. Only a missing OperatorPolicy or Constraint is created, suspended, which is
// always safe. An edited template waits like a new one: its state must not be reported as if the edit were applied.
func (in *TemplateInput) undecided() TemplateOutcome {
	live := in.Live
	if live != nil && live.Ours && !live.Suspended && !live.Deleting && !in.Edited && !in.Template.WasSuspended() {
		out := in.live()
		out.Decision = DoKeep
		return out
	}
	out := in.pending(PendingText(in.Results, in.Cycle, in.Template.IgnorePending))
	out.Unread = !slices.ContainsFunc(out.Unmet, func(r Result) bool { return !r.Unread })
	switch {
	case in.suspends() && live == nil && !out.Unread && in.WriteFault == "":
		out.Decision = DoSuspend
	case in.suspends() && live == nil && in.WriteFault != "":
		return in.fault(in.WriteFault)
	case live != nil:
		out.Decision = DoKeep
	}
	return out
}

func (in *TemplateInput) suspends() bool { return in.Template.Suspendable && in.Mode != Delete }

// fault is the outcome of a template error.
func (in *TemplateInput) fault(text string) TemplateOutcome {
	return TemplateOutcome{Template: in.Template.Name, Decision: DoFault, State: NonCompliant,
		Message: message(NonCompliant, "template-error; "+text), Unmet: unmet(in.Results)}
}

// pending is the outcome of a waiting template. With ignorePending only the reported state differs.
func (in *TemplateInput) pending(text string) TemplateOutcome {
	out := TemplateOutcome{Template: in.Template.Name, Decision: DoWait, State: Pending, Unmet: unmet(in.Results)}
	if in.Template.IgnorePending {
		out.State = Compliant
	}
	out.Message = message(out.State, text)
	return out
}

// live is the outcome of a template whose object is kept or applied: the object's own state.
func (in *TemplateInput) live() TemplateOutcome {
	out := TemplateOutcome{Template: in.Template.Name}
	out.State, out.Evaluating = in.Live.state()
	if in.Template.Suspendable && out.State == Pending {
		// it was suspended until now, and its status does not say its state without that yet
		out.State, out.Evaluating = Unknown, true
	}
	if out.State != Unknown {
		out.Message = in.Live.message(in.Template.Ref, out.State)
		out.Notified = in.Template.Ref.Group == PolicyGroup && in.Template.Ref.Kind == KindOperatorPolicy
	}
	return out
}

func (in *TemplateInput) foreign() string {
	const fix = ": delete it, or give the template another name"
	if owner := in.Live.Owner; owner != nil {
		return in.Template.Ref.String() + " exists already and belongs to " + owner.String() + fix
	}
	return in.Template.Ref.String() + " exists already and belongs to no Policy" + fix
}

// maxMessage bounds a message, in bytes.
const maxMessage = 4096

func message(state State, says string) string {
	return text.Truncate(string(state)+"; "+says, maxMessage)
}
