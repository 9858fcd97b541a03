package dependency

import (
	"fmt"
	"time"

	"github.com/opgate/opgate/internal/text"
)

// Decision is what is to be done with the object of a template.
type Decision int

// The decisions.
const (
	// DoKeep leaves it as it is.
	DoKeep Decision = iota
	// DoApply creates it or brings it up to date, not suspended.
	DoApply
	// DoSuspend creates it or brings it up to date, with AnnotationPending.
	DoSuspend
	// DoDelete deletes it.
	DoDelete
	// DoWait: it is not there and is not made.
	DoWait
	// DoFault: there is a template error; whatever is there is left as it is.
	DoFault
)

// String is for tests and logs.
func (d Decision) String() string {
	return [...]string{"Keep", "Apply", "Suspend", "Delete", "Wait", "Fault"}[d]
}

// TemplateInput is all that deciding on one template needs.
type TemplateInput struct {
	Policy   *Policy
	Template Template
	// Findings has one for each of the template's dependencies.
	Findings []Finding
	// Cycle is one that the Policy is part of, for the message.
	Cycle []Ref
	// Damped, from Damping.Next, is how long the template is held back still. Damping is for the message.
	Damped  time.Duration
	Damping Damping
	// Mode says what becomes of guards; empty is Suspend.
	Mode PendingGuards
	// Live is nil where there is none.
	Live *Live
	// Edited says that the template has changed since it was written last; false where nobody knows.
	Edited bool
	// KindFault is why no object of this kind can be made: it counts before what is waited for. WriteFault is why it
	// cannot be written, and counts after it.
	KindFault, WriteFault string
}

// TemplateOutcome is what becomes of one template.
type TemplateOutcome struct {
	Template string
	Decision Decision
	// State is empty where it is unknown.
	State State
	// Message is "<State>; <text>", empty where the state is unknown.
	Message string
	// Fault: there is a template error.
	Fault bool
	// Evaluating: the state is unknown because the object has not been evaluated yet.
	Evaluating bool
	// Unmet are the findings that it waits for.
	Unmet []Finding
	// Unread: it waits for what has not been read yet, and nothing else is known.
	Unread bool
}

// Decide decides on one template. A template error that no edit of something else can mend comes first, then what is
// waited for, then everything that stands in the way of applying it.
func Decide(in TemplateInput) TemplateOutcome {
	for _, fault := range []string{in.Template.Fault, in.KindFault} {
		if fault != "" {
			return in.fault(fault)
		}
	}
	met, decided := Settled(in.Findings)
	switch {
	case !decided:
		return in.undecided()
	case !met:
		return in.unmet(PendingText(in.Findings, in.Cycle, in.Template.IgnorePending))
	case in.Damped > 0:
		return in.unmet(in.dampedText())
	}
	return in.met()
}

// met applies the template, unless something stands in the way.
func (in *TemplateInput) met() TemplateOutcome {
	switch live := in.Live; {
	case in.Template.HubError != "":
		return in.fault(in.Template.HubError)
	case in.WriteFault != "":
		return in.fault(in.WriteFault)
	case live != nil && !live.Ours:
		return in.fault(in.foreign())
	case live != nil && live.Deleting:
		return TemplateOutcome{Template: in.Template.Name, Decision: DoKeep, Evaluating: true} // it is made anew once it is gone
	case live != nil && live.notCreated():
		out := in.fault("Gatekeeper has not accepted it: see status.byPod of " + in.Template.Ref.String())
		out.Decision = DoApply
		return out
	}
	out := in.live()
	out.Decision = DoApply
	if in.Live == nil || in.Live.Suspended || in.Edited {
		out.State, out.Message, out.Evaluating = Unknown, "", true // what it says is from before
	}
	return out
}

// unmet takes the template back or does not make it. A guard stays, and holds approvals: without it nothing would
// restrain what it is there for.
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

// undecided leaves everything as it is. Only a guard that is not there yet is made, suspended, for it does no harm. An
// edit of what is applied waits like a new template: its state must not be told as if it were in force.
func (in *TemplateInput) undecided() TemplateOutcome {
	live := in.Live
	if live != nil && live.Ours && !live.Suspended && !live.Deleting && !in.Edited {
		out := in.live()
		out.Decision = DoKeep
		return out
	}
	out := in.pending(PendingText(in.Findings, in.Cycle, in.Template.IgnorePending))
	out.Unread = allUnread(out.Unmet)
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

func allUnread(findings []Finding) bool {
	for i := range findings {
		if !findings[i].Unread {
			return false
		}
	}
	return true
}

func (in *TemplateInput) suspends() bool { return in.Template.Guard && in.Mode != Delete }

// fault is the outcome of a template error.
func (in *TemplateInput) fault(text string) TemplateOutcome {
	return TemplateOutcome{Template: in.Template.Name, Decision: DoFault, State: NonCompliant, Fault: true,
		Message: message(NonCompliant, "template-error; "+text), Unmet: unmet(in.Findings)}
}

// pending is the outcome of a template that waits. With ignorePending only what is reported differs.
func (in *TemplateInput) pending(text string) TemplateOutcome {
	out := TemplateOutcome{Template: in.Template.Name, Decision: DoWait, State: Pending, Unmet: unmet(in.Findings)}
	if in.Template.IgnorePending {
		out.State = Compliant
	}
	out.Message = message(out.State, text)
	return out
}

// live is the outcome of a template whose object stays or is applied: its own state.
func (in *TemplateInput) live() TemplateOutcome {
	out := TemplateOutcome{Template: in.Template.Name}
	out.State, out.Evaluating = in.Live.state()
	if in.Template.Guard && out.State == Pending {
		out.State, out.Evaluating = Unknown, true // it was suspended just now, and does not say yet what it says without that
	}
	if out.State != Unknown {
		out.Message = in.Live.message(in.Template.Ref, out.State)
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

// dampedText names the whole delay and not what is left of it: the message must not change while the time passes.
func (in *TemplateInput) dampedText() string {
	s := "Dependencies are satisfied again"
	if n := in.Damping.Losses(); n > 0 {
		s += fmt.Sprintf(", but were lost %d times without an edit: the template is applied once they hold for %s", n, in.Damping.Delay())
	} else {
		s += ", but come and go: the template is applied once they hold for a while"
	}
	if in.Template.IgnorePending {
		s += " but ignorePending is true"
	}
	return s
}

// maxMessage is how long a message becomes, in bytes.
const maxMessage = 4096

func message(state State, says string) string {
	return text.Truncate(string(state)+"; "+says, maxMessage)
}
