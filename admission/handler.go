package admission

import (
	"context"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/opgate/opgate/rules"
)

// endpoint answers the reviews of one kind at one path.
type endpoint[New, Old any] struct {
	gate *Gate
	// kind labels metrics and logs: "subscription", "installplan".
	kind string
	// exempt answers before the snapshot is looked at; nil exempts nothing. It is for the writes of OLM that
	// must never be refused, whatever state the gate is in.
	exempt func(*request[New, Old]) bool
	judge  func(context.Context, *Snapshot, *request[New, Old]) rules.Verdict
}

// ServeHTTP reads one review and writes one answer. What cannot be read is refused.
func (e *endpoint[New, Old]) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		http.Error(w, "admission reviews are sent by POST", http.StatusMethodNotAllowed)
		return
	}
	body, err := readBody(w, r, e.gate.now())
	if err != nil {
		e.refuseUnread(w, "", err)
		return
	}
	start := e.gate.now()
	req, uid, err := decodeReview[New, Old](body)
	if err != nil {
		e.refuseUnread(w, uid, err)
		return
	}
	verdict := e.verdict(r.Context(), req)
	answer, err := response(&verdict)
	if err != nil {
		e.refuseUnread(w, uid, fmt.Errorf("the answer cannot be written: %w", err))
		return
	}
	e.gate.metrics.observe(e.kind, req.Operation, &verdict, e.gate.now().Sub(start))
	e.log(req, &verdict)
	if err := write(w, uid, answer); err != nil {
		e.gate.log.V(1).Info("answer not delivered", "kind", e.kind, "error", err.Error())
	}
}

func (e *endpoint[New, Old]) verdict(ctx context.Context, req *request[New, Old]) rules.Verdict {
	if e.exempt != nil && e.exempt(req) {
		return rules.Verdict{Object: e.kind}
	}
	snapshot := e.gate.store.Load()
	if snapshot == nil {
		return notReady(e.kind)
	}
	return e.judge(ctx, snapshot, req)
}

// notReady refuses until the first full snapshot (threat G2).
func notReady(kind string) rules.Verdict {
	return rules.Verdict{Object: kind, Decision: rules.Hold, Reasons: []rules.Reason{{
		Decision: rules.Hold, Rule: rules.RuleGateNotReady,
		Message: fmt.Sprintf("opgate is not ready (%s): it is still reading policies and operators; try again in a few seconds", rules.RuleGateNotReady)}}}
}

// refuseUnread answers a review that could not be judged.
func (e *endpoint[New, Old]) refuseUnread(w http.ResponseWriter, uid string, cause error) {
	e.gate.log.Info("review refused", "kind", e.kind, "decision", rules.Deny.String(), "error", cause.Error())
	e.gate.metrics.observe(e.kind, "", &rules.Verdict{Decision: rules.Deny}, 0)
	message := fmt.Sprintf("opgate cannot judge this %s and refuses it (%s): %v", e.kind, rules.RuleGateUnreadable, cause)
	answer := &admissionv1.AdmissionResponse{Result: refusal(http.StatusBadRequest, metav1.StatusReasonBadRequest, message)}
	if err := write(w, uid, answer); err != nil {
		e.gate.log.V(1).Info("answer not delivered", "kind", e.kind, "error", err.Error())
	}
}

// log writes one line: at V(0) for refusals and overrides, which people ask about later, at V(1) for the rest.
func (e *endpoint[New, Old]) log(req *request[New, Old], v *rules.Verdict) {
	level, message := 1, "review allowed"
	if v.Decision != rules.Allow {
		level, message = 0, "review refused"
	}
	log := e.gate.log.V(level)
	if !log.Enabled() {
		return
	}
	var ids []rules.RuleID
	for _, r := range v.Reasons {
		ids = append(ids, r.Rule)
	}
	log.Info(message, "kind", e.kind, "uid", req.UID, "object", v.Object, "operation", req.Operation, "subresource", req.SubResource,
		"user", req.User.Username, "decision", v.Decision.String(), "rules", ids, "warnings", len(v.Warnings)+len(v.Changes))
}
