// Package evidence reads the annotations of a plan by which users have overridden a refusal or consented to a change,
// and when these end. What it returns is what the plan states: who may write that is judged elsewhere. Time is an
// input.
package evidence

import (
	"fmt"
	"strings"
	"time"

	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/operatorpolicy"
)

// EndedMark begins the value of what has ended, whatever the time: the leader writes it at the end, so that a clock
// that is behind, or was set back, does not open it again.
const EndedMark = "ended"

// MaxShown bounds what a message shows of a value that is no time, in bytes.
const MaxShown = 64

// Expiry is when an override or a consent ends, by an annotation.
type Expiry struct {
	annotation string
	// Value is a time as in RFC 3339; empty for no end.
	Value string
}

// OverrideExpiry returns when the override of an object ends.
func OverrideExpiry(m *olm.ObjectMeta) Expiry {
	return Expiry{metakey.OverrideExpires, m.Annotations.OverrideExpires}
}

// ConsentExpiry returns when the consent to changes of a plan ends.
func ConsentExpiry(m *olm.ObjectMeta) Expiry {
	return Expiry{metakey.ConsentExpires, m.Annotations.ConsentExpires}
}

// At returns the time of the end; known is false without one, and for a value that cannot be read or is marked as ended.
func (e Expiry) At() (end time.Time, known bool) {
	end, err := time.Parse(time.RFC3339, e.Value)
	return end, err == nil
}

// Ended returns that something has ended at a time, to follow its noun; "" if it is in force.
func (e Expiry) Ended(now time.Time) string {
	end, known := e.At()
	switch {
	case e.Value == "" || known && !now.IsZero() && now.Before(end):
		return ""
	case known && now.IsZero():
		return "ends " + e.at("at ") + ", and the time is not known"
	case known || e.marked():
		return strings.TrimSpace("ended " + e.Unmarked().at("at "))
	}
	return "has an end that cannot be read, " + text.Quote(text.Truncate(e.Value, MaxShown))
}

// at returns the end after a word; "" if it is not known.
func (e Expiry) at(word string) string {
	end, known := e.At()
	if !known {
		return ""
	}
	return word + end.Format(time.RFC3339)
}

// EndedText is ended with the annotation.
func (e Expiry) EndedText(now time.Time) string {
	if ended := e.Ended(now); ended != "" {
		return ended + " (annotation " + e.annotation + ")"
	}
	return ""
}

// marked reports whether the value states that the end has come.
func (e Expiry) marked() bool { return strings.HasPrefix(e.Value, EndedMark) }

// Mark returns the value by which it is recorded that the end has come.
func (e Expiry) Mark() string { return EndedMark + " " + e.Value }

// Unmarked returns the end without the mark, for what was written before it came.
func (e Expiry) Unmarked() Expiry {
	e.Value = strings.TrimPrefix(e.Value, EndedMark+" ")
	return e
}

// Accepted is what to write after the end.
func (e Expiry) Accepted() string {
	return "allowed in annotation " + e.annotation +
		" is a later time, as in RFC 3339, such as 2026-12-15T00:00:00Z, or none"
}

// Malformed reports whether the value neither is a time nor states that the end has come.
func (e Expiry) Malformed() bool {
	_, known := e.At()
	return e.Value != "" && !known && !e.marked()
}

// Later reports whether the end comes later than another one.
func (e Expiry) Later(than Expiry) bool {
	end, known := e.At()
	other, otherKnown := than.At()
	switch {
	case e.Value != "" && !known || than.Value == "":
		return false
	case e.Value == "" || !otherKnown:
		return true
	}
	return end.After(other)
}

// Until returns the end of what is in force, as " until <time>"; "" without one.
func (e Expiry) Until() string { return e.at(" until ") }

// Of returns when the overrides and consents of a plan end that still count for what OLM has not installed.
func Of(plan *olm.InstallPlan) []Expiry {
	if plan.Status.Phase == olm.PhaseComplete {
		return nil
	}
	var all []Expiry
	if Overridden(plan) {
		all = append(all, OverrideExpiry(&plan.Metadata))
	}
	if plan.Metadata.Annotations.Consent != "" {
		all = append(all, ConsentExpiry(&plan.Metadata))
	}
	return all
}

// EndMarks returns the annotations by which it is recorded that the override or the consent of a plan has ended;
// none if that is recorded, or has not come. The time is that of the leader.
func EndMarks(plan *olm.InstallPlan, now time.Time) map[string]string {
	ended := map[string]string{}
	for _, e := range Of(plan) {
		if end, known := e.At(); known && !now.IsZero() && !now.Before(end) {
			ended[e.annotation] = e.Mark()
		}
	}
	return ended
}

// OverrideReason returns the reason for an override that an object has; "" for none.
func OverrideReason(m *olm.ObjectMeta) string {
	return strings.TrimSpace(m.Annotations.OverrideReason)
}

// Overridden reports whether the approval of a plan was allowed by an override, which may have ended. The reason on an
// approved plan proves that, since rule plan/override-reason keeps every other write from adding one.
func Overridden(p *olm.InstallPlan) bool {
	return p.Spec.Approved && OverrideReason(&p.Metadata) != ""
}

// OverrideEnd returns that the override of a plan has ended at a time, to follow its noun; "" if the plan has none, or
// that is in force.
func OverrideEnd(p *olm.InstallPlan, now time.Time) string {
	if !Overridden(p) {
		return ""
	}
	return OverrideExpiry(&p.Metadata).EndedText(now)
}

// maxConsent bounds the annotation, in bytes: MaxDigests with a comma and a few blanks each.
const maxConsent = operatorpolicy.MaxDigests * 80

// Consented returns the digests in the annotation of a plan, or what is wrong with it. Such an annotation consents to
// nothing.
func Consented(m *olm.ObjectMeta) (digests map[string]bool, problem string) {
	value := m.Annotations.Consent
	if len(value) > maxConsent {
		return nil, fmt.Sprintf("it has %d bytes, at most %d are read", len(value), maxConsent)
	}
	if strings.TrimSpace(value) == "" {
		return nil, ""
	}
	digests = map[string]bool{}
	for part := range strings.SplitSeq(value, ",") {
		digest := strings.TrimSpace(part)
		if problem := operatorpolicy.NotDigest(digest); problem != "" {
			return nil, text.Quote(digest) + " " + problem
		}
		digests[digest] = true
	}
	if len(digests) > operatorpolicy.MaxDigests {
		return nil, fmt.Sprintf("it has %d digests, at most %d are read", len(digests), operatorpolicy.MaxDigests)
	}
	return digests, ""
}
