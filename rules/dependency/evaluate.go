package dependency

import (
	"strconv"

	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/internal/text"
)

// Finding is the result of evaluating one dependency.
type Finding struct {
	Dependency
	Met bool
	// Undecided is set where the dependency is not met but may be soon. It changes nothing.
	Undecided bool
	// Unread is set where the object has not been read yet.
	Unread bool
	Reason Reason
	// State is the state in the object's status, empty if none.
	State State
	// Text explains the reason.
	Text string
	// UID and Generation are the object's, zero if it does not exist.
	UID        types.UID
	Generation int64
}

// Evaluate reports whether a dependency is met by what was observed.
func Evaluate(d Dependency, o Observed) Finding {
	f := Finding{Dependency: d, UID: o.UID, Generation: o.Generation, State: o.State}
	switch {
	case o.Reason == NotFound && d.Group == GatekeeperTemplateGroup && d.Kind == KindConstraintTemplate &&
		d.Want != Compliant:
		f.Met = true // for this kind, existing means Compliant
	case o.Reason != "":
		f.Reason, f.Text = o.Reason, notReadText(o)
		f.Undecided = o.Reason == NotRead || o.Reason == TooMany
		f.Unread = o.Reason == NotRead && o.Detail == ""
	case o.Stale():
		f.Reason, f.Undecided = Stale, true
		f.Text = "generation " + strconv.FormatInt(o.Generation, 10) + " is not evaluated yet"
	case !o.HasState:
		f.Reason, f.Undecided = NoStatus, o.Evaluating
		f.Text = "it has neither status.compliant nor status.complianceState"
		if d.Group == GatekeeperConstraintGroup {
			f.Text = "it has no status.totalViolations"
		}
	case o.State != d.Want:
		f.Reason = WrongState
		f.Text = "it is " + text.Name(string(o.State)) + " and " + text.Name(string(d.Want)) + " is wanted"
	default:
		f.Met = true
	}
	return f
}

// notReadText returns why an object could not be read.
func notReadText(o Observed) string {
	if o.Detail != "" {
		return text.Truncate(o.Detail, 500)
	}
	switch o.Reason {
	case NotFound:
		return "it does not exist"
	case NoKind:
		return "the cluster does not serve this kind"
	case Forbidden:
		return "opgate may not read it"
	default:
		return "it has not been read yet"
	}
}

// Settled reports whether all dependencies are met, and whether that is decided: one that is not met decides it; one
// that is stale or not read yet leaves it undecided.
func Settled(findings []Finding) (met, decided bool) {
	met, decided = true, true
	for i := range findings {
		switch {
		case findings[i].Met:
		case findings[i].Undecided:
			met, decided = false, false
		default:
			return false, true
		}
	}
	return met, decided
}

// unmet returns the findings that are not met.
func unmet(findings []Finding) []Finding {
	var rest []Finding
	for i := range findings {
		if !findings[i].Met {
			rest = append(rest, findings[i])
		}
	}
	return rest
}
