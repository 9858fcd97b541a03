package rules

import (
	"slices"
	"strings"
	"time"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
)

// The annotations that end an override or a consent (R-AP-12): a time as in RFC 3339. Without one it does not end.
const (
	OverrideExpiresAnnotation = "opgate.io/override-expires"
	ConsentExpiresAnnotation  = "opgate.io/consent-expires"
)

// endedMark begins the value of what has ended, whatever the time: the leader writes it at the end, so that a clock
// that is behind, or was set back, does not open it again.
const endedMark = "ended"

// maxShownExpiry bounds what a message shows of a value that is no time, in bytes.
const maxShownExpiry = 64

// expiry is when an override or a consent ends.
type expiry struct {
	annotation, value string
}

func overrideExpiry(m *olm.ObjectMeta) expiry {
	return expiry{OverrideExpiresAnnotation, m.Annotations.OverrideExpires}
}

func consentExpiry(m *olm.ObjectMeta) expiry {
	return expiry{ConsentExpiresAnnotation, m.Annotations.ConsentExpires}
}

// at returns the time of the end. Outcomes: without an end never is true; a value that cannot be read, or that is
// marked as ended, is not known, and has ended.
func (e expiry) at() (end time.Time, never, known bool) {
	if e.value == "" {
		return time.Time{}, true, true
	}
	end, err := time.Parse(time.RFC3339, e.value)
	return end, false, err == nil
}

// ended returns that something has ended at a time, to follow its noun; "" if it is in force.
func (e expiry) ended(now time.Time) string {
	end, never, known := e.at()
	switch {
	case never:
		return ""
	case !known && e.marked():
		return strings.TrimSpace("ended " + e.markedAt())
	case !known:
		return "has an end that cannot be read, " + text.Quote(text.Truncate(e.value, maxShownExpiry))
	case now.IsZero():
		return "ends at " + end.Format(time.RFC3339) + ", and the time is not known"
	case now.Before(end):
		return ""
	}
	return "ended at " + end.Format(time.RFC3339)
}

// endedText is ended with the annotation.
func (e expiry) endedText(now time.Time) string {
	if ended := e.ended(now); ended != "" {
		return ended + " (annotation " + e.annotation + ")"
	}
	return ""
}

// marked reports whether the value states that the end has come.
func (e expiry) marked() bool { return strings.HasPrefix(e.value, endedMark) }

// mark returns the value by which it is recorded that the end has come.
func (e expiry) mark() string { return endedMark + " " + e.value }

// unmarked returns the end without the mark, for what was written before it came.
func (e expiry) unmarked() expiry {
	if end, found := strings.CutPrefix(e.value, endedMark+" "); found {
		e.value = end
	}
	return e
}

// markedAt returns when something that is marked ended, as "at <time>"; "" if that is not known.
func (e expiry) markedAt() string {
	end, never, known := e.unmarked().at()
	if never || !known {
		return ""
	}
	return "at " + end.Format(time.RFC3339)
}

// accepted is what to write after the end.
func (e expiry) accepted() string {
	return "allowed in annotation " + e.annotation +
		" is a later time, as in RFC 3339, such as 2026-12-15T00:00:00Z, or none"
}

// malformed reports whether the value neither is a time nor states that the end has come.
func (e expiry) malformed() bool {
	_, _, known := e.at()
	return !known && !e.marked()
}

// later reports whether the end comes later than another one.
func (e expiry) later(than expiry) bool {
	end, never, known := e.at()
	other, otherNever, otherKnown := than.at()
	switch {
	case !known || otherNever:
		return false
	case never || !otherKnown:
		return true
	}
	return end.After(other)
}

// until returns the end of what is in force, as " until <time>"; "" without one.
func (e expiry) until() string {
	end, never, known := e.at()
	if never || !known {
		return ""
	}
	return " until " + end.Format(time.RFC3339)
}

// evidence returns when the overrides and consents of a plan end that still count for what OLM has not installed.
func evidence(plan *olm.InstallPlan) []expiry {
	if plan.Status.Phase == olm.PhaseComplete {
		return nil
	}
	var all []expiry
	if overridden(plan) {
		all = append(all, overrideExpiry(&plan.Metadata))
	}
	if plan.Metadata.Annotations.Consent != "" {
		all = append(all, consentExpiry(&plan.Metadata))
	}
	return all
}

// EndedEvidence returns the annotations by which it is recorded that the override or the consent of a plan has ended;
// none if that is recorded, or has not come. The time is that of the leader.
func EndedEvidence(plan *olm.InstallPlan, now time.Time) map[string]string {
	var ended map[string]string
	for _, e := range evidence(plan) {
		if end, never, known := e.at(); known && !never && !now.IsZero() && !now.Before(end) {
			if ended == nil {
				ended = map[string]string{}
			}
			ended[e.annotation] = e.mark()
		}
	}
	return ended
}

// nextEnd returns when the first override or consent of a plan ends that is in force; zero if none does.
func (n *Namespace) nextEnd(now time.Time) time.Time {
	var ends []time.Time
	for _, plan := range n.Plans() {
		for _, e := range evidence(plan) {
			if end, never, known := e.at(); known && !never && now.Before(end) {
				ends = append(ends, end)
			}
		}
	}
	if len(ends) == 0 {
		return time.Time{}
	}
	return slices.MinFunc(ends, time.Time.Compare)
}
