package compliance

import (
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
)

const (
	// historyLength is the default number of history entries.
	historyLength = 10
	// passing is how long a message must stand to be kept although the next one reports the same compliance. An upgrade
	// changes the message at every step of OLM, and would otherwise fill the history within seconds.
	passing = 10 * time.Second
)

// acted matches the messages that report what was done for the policy: they stand until the next evaluation only.
var acted = regexp.MustCompile(` was (created|updated|deleted|linked again)\b`)

// nextHistory returns the history, newest first, with a message that is reported now, cut to most entries. Kept are the
// first message after every change of compliance, the last one before it, what was done for the policy, and all that
// stood long enough to be read; the newest entry always has the present message. Most is 10 if it is less
// than 1.
func nextHistory(
	history []policyv1beta2.HistoryEvent, message string, now time.Time, most int,
) []policyv1beta2.HistoryEvent {
	next := slices.Clone(history)
	if len(next) > 1 && next[0].Message != message && now.Sub(next[0].LastTimestamp.Time) < passing &&
		sameCompliance(next[0].Message, message) && sameCompliance(next[1].Message, message) &&
		!acted.MatchString(next[0].Message) {
		next = next[1:]
	}
	if len(next) == 0 || next[0].Message != message {
		at := metav1.NewMicroTime(now.Truncate(time.Microsecond))
		next = slices.Insert(next, 0, policyv1beta2.HistoryEvent{LastTimestamp: at, Message: message})
	}
	if most < 1 {
		most = historyLength
	}
	return next[:min(len(next), most)]
}

// sameCompliance reports whether two messages begin with the same state.
func sameCompliance(a, b string) bool {
	of, _, _ := strings.Cut(a, ";")
	return strings.HasPrefix(b, of+";")
}
