package exception

import (
	"fmt"
	"slices"
	"time"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/verdict"
)

// State is the state of exceptions at a time.
type State struct {
	// Ended, Ending and Later are clauses on those that have ended, that end within Notice, and the others.
	Ended, Ending, Later []string
}

// At returns the state at a time, which has to be known.
func (l List) At(now time.Time) State {
	var s State
	for i := range l {
		e := &l[i]
		set, names := text.Names(e.ruleNames(), verdict.MaxListed), text.Names(e.entries, verdict.MaxListed)
		if len(e.namespaces) > 0 {
			names += " in " + text.Names(e.namespaces, verdict.MaxListed)
		}
		until, reason := e.expires.Format(time.RFC3339), text.Quote(e.reason)
		clause := fmt.Sprintf("exception %d sets %s aside for %s until %s (%s)", e.index+1, set, names, until, reason)
		switch {
		case !e.inForce(now):
			s.Ended = append(s.Ended, fmt.Sprintf("exception %d, which set %s aside for %s, ended at %s (%s)",
				e.index+1, set, names, until, reason))
		case e.expires.Sub(now) <= Notice:
			s.Ending = append(s.Ending, clause)
		default:
			s.Later = append(s.Later, clause)
		}
	}
	return s
}

// The condition on exceptions, which does not count for compliance: what an exception lets in does, once that has
// ended.
const (
	// Condition is True if an exception is in force. Absent without exceptions.
	Condition = "ExceptionsInForce"

	ReasonInForce  = "ExceptionsInForce"
	ReasonEndsSoon = "ExceptionEndsSoon"
	ReasonEnded    = "ExceptionEnded"
)

// Condition returns what the condition has: whether an exception is in force, the reason, and clauses on all
// exceptions, those that have ended first. There are none without exceptions.
func (s *State) Condition() (inForce bool, reason string, clauses []string) {
	clauses = slices.Concat(s.Ended, s.Ending, s.Later)
	switch inForce = len(s.Ending)+len(s.Later) > 0; {
	case len(s.Ended) > 0:
		return inForce, ReasonEnded, clauses
	case len(s.Ending) > 0:
		return inForce, ReasonEndsSoon, clauses
	}
	return inForce, ReasonInForce, clauses
}

// Judge records by a rule what is wrong with the ends of exceptions. One that has ended is warned of, and
// refused in a review of files, which have to be corrected: a stored object with one may still be edited. Such a review
// warns of those that end soon.
func (l List) Judge(v *verdict.Verdict, id verdict.RuleID, now time.Time, files bool) {
	if now.IsZero() {
		return
	}
	state := l.At(now)
	for _, ended := range state.Ended {
		r := verdict.Reason{Rule: id, Decision: verdict.Deny, Field: "spec.exceptions",
			Message: verdict.Sentence(ended, id, AfterEnd)}
		if files {
			v.Refuse(r)
		} else {
			v.Warn(r)
		}
	}
	if !files {
		return
	}
	for _, ending := range state.Ending {
		v.Warn(verdict.Reason{Rule: id, Field: "spec.exceptions",
			Message: verdict.Sentence(ending, id, "that is in less than 14 days; "+AfterEnd)})
	}
}
