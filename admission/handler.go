package admission

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/opgate/opgate/internal/inflight"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/verdict"
	"github.com/opgate/opgate/snapshot"
)

// endpoint answers the reviews of one kind at one path.
type endpoint[New, Old any] struct {
	gate *Gate
	// kind labels metrics and logs: "subscription", "installplan".
	kind string
	// governed is whether policies and Constraints judge the kind.
	governed bool
	// concerns returns the namespace that a write is judged in; nil for that of the object.
	concerns func(*request[New, Old]) string
	// step is whether it is for what OLM writes as steps of plans. Its webhooks have failurePolicy Ignore, so that an
	// HTTP error, or no answer, would allow the step.
	step bool
	// raw is the member of objects that is kept as JSON, so that the values in it take less memory; "" for none.
	raw string
	// stored returns the object that an update changes, for events; nil reports none.
	stored func(*request[New, Old]) *corev1.ObjectReference
	// form reports whether a write looks like OLM's; nil never reports it.
	form  form[New, Old]
	judge func(context.Context, *snapshot.Snapshot, *request[New, Old]) verdict.Verdict
}

// expectPanics exports the number of panics from 0 on.
func (e *endpoint[New, Old]) expectPanics() { e.gate.Panics.Expect(e.kind) }

// ServeHTTP reads one review and writes one answer. What cannot be read is refused, and so is a review whose judging
// panics, or for which there is no memory. A client that is not authenticated is answered 429 in the last case, except
// where step is set: there it is refused before anything is read for it.
func (e *endpoint[New, Old]) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		http.Error(w, "admission reviews are sent by POST", http.StatusMethodNotAllowed)
		return
	}
	ctx, cancel := withDeadline(r)
	defer cancel()
	caller := inflight.Caller{Authenticated: e.gate.Authenticated != nil && e.gate.Authenticated(r), Step: e.step,
		Raw: e.raw}
	body := e.gate.Budget.For(r, caller)
	defer body.Close()
	var answer *admissionv1.AdmissionResponse
	err := errUnknownCaller
	if caller.Authenticated || !e.step {
		err = body.Read(ctx, w, r)
	}
	switch {
	case err == nil:
		answer = e.judged(ctx, body, caller.Authenticated)
	case errors.Is(err, errUnknownCaller):
		body.Peek(ctx, w, r)
		answer = e.held(unknownCaller(e.kind))
	case errors.Is(err, inflight.ErrBusy) && !caller.Authenticated:
		inflight.RejectBusy(w)
		return
	case errors.Is(err, inflight.ErrBusy):
		answer = e.held(late(e.kind))
	default:
		answer = e.unreadable(err)
	}
	failed := write(w, body.Head.UID, answer)
	if failed != nil {
		e.gate.Log.V(1).Info("answer not delivered", "kind", e.kind, "error", failed.Error())
	}
	if e.gate.Exposed != nil && caller.Authenticated &&
		(failed != nil || ctx.Err() != nil || errors.Is(err, inflight.ErrNotReceived)) {
		e.gate.Exposed(r)
	}
}

// judged answers a review that was received.
func (e *endpoint[New, Old]) judged(
	ctx context.Context, body *inflight.Body, authenticated bool,
) (answer *admissionv1.AdmissionResponse) {
	panicked := e.gate.Panics.Run(e.kind, func() {
		var uid string
		uid, answer = e.answer(ctx, body, authenticated)
		body.Head.UID = cmp.Or(uid, body.Head.UID)
	})
	if panicked {
		return e.internal()
	}
	return answer
}

// answer judges a review that was received and returns its UID, "" if it was not decoded.
func (e *endpoint[New, Old]) answer(
	ctx context.Context, body *inflight.Body, authenticated bool,
) (string, *admissionv1.AdmissionResponse) {
	start := e.gate.Now()
	req, err := decodeReview[New, Old](body.JSON)
	if err != nil {
		return "", e.unreadable(err)
	}
	uid := req.UID
	req.authenticated, req.endWork = authenticated, body.EndWork
	regarded := e.regarded(req) // judging may drop the objects
	judged := e.verdict(ctx, req)
	e.reportCandidate(ctx, req, &judged)
	answered := judged
	if !req.authenticated {
		answered = judged.Redacted()
	}
	answer, err := response(&answered)
	if err != nil {
		return uid, e.unreadable(fmt.Errorf("the answer cannot be written: %w", err))
	}
	e.gate.Metrics.observe(e.kind, req.Operation, &judged, e.gate.Now().Sub(start))
	if req.authenticated && e.gate.OLM.Is(&req.User) {
		e.gate.OLM.Seen(start)
	}
	if req.stores() {
		e.gate.Metrics.overridden(&judged)
	}
	e.log(req, &judged)
	e.gate.report(regarded, req.User.Username, &judged)
	return uid, answer
}

func (e *endpoint[New, Old]) verdict(ctx context.Context, req *request[New, Old]) verdict.Verdict {
	if ctx.Err() != nil {
		return late(e.kind)
	}
	current := e.gate.Store.Load()
	if current == nil {
		return notReady(e.kind)
	}
	if kinds := e.gate.Store.Stale(); len(kinds) > 0 {
		return stale(e.kind, kinds)
	}
	if e.governed && req.authenticated {
		namespace := req.Namespace
		if e.concerns != nil {
			namespace = e.concerns(req)
		}
		current = e.gate.awaitAdmitted(ctx, current, namespace)
	}
	judged := e.judge(ctx, current, req)
	if judged.Decision != verdict.Allow {
		e.gate.explainUntrusted(&req.User, &judged)
	}
	return judged
}

// byGate is the answer of the gate itself.
func byGate(kind string, decision verdict.Decision, id verdict.RuleID, what, more string) verdict.Verdict {
	v := verdict.Verdict{Object: kind}
	v.Add(id, verdict.Finding{Decision: decision, What: what, Accepted: more})
	return v
}

const tryAgain = "; try again in a few seconds"

// notReady refuses until the first full snapshot.
func notReady(kind string) verdict.Verdict {
	return byGate(kind, verdict.Hold, rules.RuleGateNotReady, "opgate is not ready",
		"it is still reading policies and operators"+tryAgain)
}

// stale refuses while the snapshot may lack what is stored since.
func stale(kind string, kinds []*snapshot.Kind) verdict.Verdict {
	return byGate(kind, verdict.Hold, rules.RuleGateStale, "opgate is not up to date",
		"its watch of "+snapshot.Names(kinds)+" shows no progress"+tryAgain)
}

// late refuses what was read too late to be judged while the API server waits. Where failurePolicy is Ignore, no answer
// would allow it.
func late(kind string) verdict.Verdict {
	return byGate(kind, verdict.Hold, rules.RuleGateNotReady, "opgate cannot judge this "+kind+" in time",
		"it is overloaded"+tryAgain)
}

// errUnknownCaller means that nothing is read for a client, since it is not known to be the API server.
var errUnknownCaller = errors.New("the caller is not known to be the API server")

// unknownCaller refuses a step that a client sent which is not authenticated. It may be the API server, until this
// replica has seen the current token.
func unknownCaller(kind string) verdict.Verdict {
	return byGate(kind, verdict.Hold, rules.RuleGateNotReady, "opgate is not ready", errUnknownCaller.Error()+tryAgain)
}

// held answers a review that was not read.
func (e *endpoint[New, Old]) held(v verdict.Verdict) *admissionv1.AdmissionResponse {
	e.gate.Metrics.observe(e.kind, "", &v, 0)
	return &admissionv1.AdmissionResponse{Result: refusal(v.Refusal())}
}

// unreadable answers a review that could not be judged. OLM repeats a step that is refused by 403, and fails the plan
// on 400.
func (e *endpoint[New, Old]) unreadable(cause error) *admissionv1.AdmissionResponse {
	why := text.Truncate(cause.Error(), maxQuoted)
	e.gate.Log.Info("review refused", "kind", e.kind, "decision", verdict.Deny.String(), "error", why)
	e.gate.Metrics.observe(e.kind, "", &verdict.Verdict{Decision: verdict.Deny}, 0)
	result := refusal(verdict.Sentence("opgate cannot judge this "+e.kind+" and refuses it", rules.RuleGateUnreadable, why))
	if !e.step {
		result.Code, result.Reason = http.StatusBadRequest, metav1.StatusReasonBadRequest
	}
	return &admissionv1.AdmissionResponse{Result: result}
}

// internal answers a review whose judging panicked. It is a 403 like every temporary refusal: OLM retries these, and
// treats a dropped connection as final.
func (e *endpoint[New, Old]) internal() *admissionv1.AdmissionResponse {
	return e.held(byGate(e.kind, verdict.Hold, rules.RuleGateInternal,
		"opgate failed while it judged this "+e.kind+" and refuses it", "the log of its pods says where"))
}

// defaultTimeout is the API server's timeout where a request does not state it: timeoutSeconds of the webhook
// configurations.
const defaultTimeout = 5 * time.Second

// withDeadline returns the context of a review. It ends after four fifths of the API server's timeout: judging stops
// then, and what was not judged is held, in an answer that still arrives. A timeout would allow the request where
// failurePolicy is Ignore. The API server sends its timeout in parameter timeout; more than ten times the default is
// ignored.
func withDeadline(r *http.Request) (context.Context, context.CancelFunc) {
	timeout := defaultTimeout
	if given, ok := strings.CutPrefix(r.URL.RawQuery, "timeout="); ok { // the API server adds no other parameter
		if parsed, err := time.ParseDuration(given); err == nil && parsed > 0 && parsed <= 10*defaultTimeout {
			timeout = parsed
		}
	}
	return context.WithTimeout(r.Context(), timeout-timeout/5)
}
