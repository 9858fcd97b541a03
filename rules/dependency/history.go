package dependency

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	policyv1 "github.com/opgate/opgate/api/policy/v1"
	"github.com/opgate/opgate/internal/text"
)

const (
	// maxHistory is how many messages are kept per template, newest first.
	maxHistory = 10
	// maxDetails bounds the messages of all templates together, in bytes, so that the object can be stored; minHistory
	// is what each template keeps in any case.
	maxDetails = 256 << 10
	minHistory = 512
)

// nextHistory adds new messages. The newest message is always that of the present state, unless that is unknown: then
// nothing is added, but that the dependencies are met.
func nextHistory(
	before []policyv1.ComplianceHistory, out *TemplateOutcome, object map[string]any, now metav1.Time, size int,
) []policyv1.ComplianceHistory {
	size = max(size, minHistory)
	says := text.Truncate(out.Message, size)
	if out.State == Unknown {
		waited, _, found := strings.Cut(newest(before), "; Dependencies ")
		if !found || !out.Evaluating {
			return bounded(before, size)
		}
		says = waited + "; Dependencies are satisfied, and the object is not evaluated yet"
	}
	if newest(before) == says {
		return bounded(before, size)
	}
	fresh := objectHistory(object, out, before)
	if len(fresh) == 0 {
		fresh = []policyv1.ComplianceHistory{{LastTimestamp: now}}
	}
	fresh[0].Message = says
	return bounded(append(fresh, before...), size)
}

// newest returns the newest message.
func newest(history []policyv1.ComplianceHistory) string {
	if len(history) == 0 {
		return ""
	}
	return history[0].Message
}

// objectHistory returns the entries of the object's own history that are not in before, newest first: it may have
// changed more often than Opgate has read it. It returns nothing if the message to report is not from there.
func objectHistory(
	object map[string]any, out *TemplateOutcome, before []policyv1.ComplianceHistory,
) []policyv1.ComplianceHistory {
	list, _ := child(object, "status")["history"].([]any)
	var fresh []policyv1.ComplianceHistory
	for i, entry := range list[:min(len(list), maxHistory)] {
		h, ok := objectEntry(entry, out.State, i == 0)
		if i == 0 && (!ok || h.Message != out.Message) {
			return nil
		}
		if !ok || i > 0 && len(before) > 0 && !h.LastTimestamp.After(before[0].LastTimestamp.Time) {
			break
		}
		fresh = append(fresh, h)
	}
	return fresh
}

// objectEntry reads an entry of an object's history. Only the newest may omit its state: it is the present one.
func objectEntry(entry any, state State, first bool) (policyv1.ComplianceHistory, bool) {
	e, _ := entry.(map[string]any)
	at, err := time.Parse(time.RFC3339, textOf(e, "lastTimestamp"))
	if err != nil {
		return policyv1.ComplianceHistory{}, false
	}
	says := textOf(e, "message")
	if !first {
		before, _, _ := strings.Cut(says, ";")
		if state = State(strings.TrimSpace(before)); !known(state) {
			return policyv1.ComplianceHistory{}, false
		}
	}
	said, ok := stated(says, state)
	return policyv1.ComplianceHistory{LastTimestamp: metav1.NewTime(at.UTC()).Rfc3339Copy(), Message: said}, ok
}

// bounded returns the newest messages that fit into size.
func bounded(history []policyv1.ComplianceHistory, size int) []policyv1.ComplianceHistory {
	history = history[:min(len(history), maxHistory)]
	for i := range history {
		if size -= len(history[i].Message); size < 0 && i > 0 {
			return history[:i]
		}
	}
	return history
}
