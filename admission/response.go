package admission

import (
	"encoding/json"
	"net/http"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/verdict"
)

// response returns the answer to a review with this verdict.
func response(v *verdict.Verdict) (*admissionv1.AdmissionResponse, error) {
	answer := &admissionv1.AdmissionResponse{Allowed: v.Decision == verdict.Allow,
		AuditAnnotations: auditAnnotations(v)}
	if !answer.Allowed {
		answer.Result = refusal(http.StatusForbidden, metav1.StatusReasonForbidden, v.Refusal())
		answer.Result.Details.Causes = rules.Causes(v)
	}
	answer.Warnings = v.WarningTexts()
	return answer, patch(answer, v.Changes)
}

// patch writes changes as an RFC 6902 document by hand: a diff of two decoded objects costs more than all
// the rest of a request.
func patch(answer *admissionv1.AdmissionResponse, changes []verdict.Change) error {
	if len(changes) == 0 {
		return nil
	}
	document, err := json.Marshal(verdict.Patch(changes))
	if err != nil {
		return err
	}
	answer.Patch = document
	answer.PatchType = new(admissionv1.PatchTypeJSONPatch)
	return nil
}

// refusal is the status of a refused review. Refusals by rules are 403 Forbidden and nothing else: OLM
// retries these without a limit, and fails the plan on every other code (reference: what a rejection
// does to OLM).
func refusal(code int32, reason metav1.StatusReason, message string) *metav1.Status {
	return &metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message,
		Details: &metav1.StatusDetails{}}
}

// auditAnnotations name the rules and policies behind a refusal, and behind the warnings of policies that
// only inform, in the audit log. Keys get the webhook's name as prefix from the API server.
func auditAnnotations(v *verdict.Verdict) map[string]string {
	if v.Decision == verdict.Allow && len(v.Warnings)+len(v.Changes)+len(v.Consents) == 0 {
		return nil
	}
	annotations := map[string]string{"decision": v.Decision.String()}
	add := func(key string, reasons []verdict.Reason) {
		if len(reasons) == 0 {
			return
		}
		var parts []string
		for _, r := range reasons[:min(len(reasons), 20)] {
			parts = append(parts, strings.TrimSpace(string(r.Rule)+" "+r.Source))
		}
		annotations[key] = strings.Join(parts, ", ")
	}
	add("refused-by", v.Reasons)
	add("warned-by", v.Warnings)
	for _, w := range v.Overrides() {
		annotations["override"] = w.Message
	}
	var consents []string
	for _, c := range v.Consents[:min(len(v.Consents), 20)] {
		consents = append(consents, c.String())
	}
	if v.Decision == verdict.Allow && len(consents) > 0 {
		annotations["consent"] = strings.Join(consents, ", ")
	}
	return annotations
}

// write sends the answer; every answer is an AdmissionReview with status 200, refusals included.
func write(w http.ResponseWriter, uid string, answer *admissionv1.AdmissionResponse) error {
	answer.UID = types.UID(uid)
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{Kind: "AdmissionReview", APIVersion: admissionv1.SchemeGroupVersion.String()},
		Response: answer,
	})
}
