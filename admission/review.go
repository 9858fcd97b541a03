package admission

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/internal/apijson"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/verdict"
)

// review is an AdmissionReview of which only what judging reads is decoded: New and Old are the parts of
// the object and the stored object that the rules for the kind look at.
type review[New, Old any] struct {
	APIVersion string             `json:"apiVersion"`
	Kind       string             `json:"kind"`
	Request    *request[New, Old] `json:"request"`
}

type request[New, Old any] struct {
	UID         string                    `json:"uid"`
	Operation   string                    `json:"operation"`
	SubResource string                    `json:"subResource"`
	Namespace   string                    `json:"namespace"`
	DryRun      bool                      `json:"dryRun"`
	User        authenticationv1.UserInfo `json:"userInfo"`
	Object      *New                      `json:"object"`
	OldObject   *Old                      `json:"oldObject"`
	Options     struct {
		FieldManager string `json:"fieldManager"`
	} `json:"options"`

	// authenticated is whether the API server sent the review; the user in reviews of other callers is forged.
	authenticated bool
	// endWork releases the memory that is reserved for judging.
	endWork func()
}

// drop releases the objects, and the memory that is reserved for judging them, once nothing needs them any more.
func (r *request[New, Old]) drop() {
	r.Object, r.OldObject = nil, nil
	if r.endWork != nil {
		r.endWork()
	}
}

// caller returns the user of the request, nil where it is not authenticated.
func (r *request[New, Old]) caller() *authenticationv1.UserInfo {
	if !r.authenticated {
		return nil
	}
	return &r.User
}

// stores reports whether the API server stores the object if it is allowed.
func (r *request[New, Old]) stores() bool { return r.authenticated && !r.DryRun }

// maxName bounds each name in a review, in bytes: all of them may be repeated in the answer.
const maxName = 253

// short reports whether the names in the review have a length that the API server would send.
func (r *review[New, Old]) short() bool {
	longest := max(len(r.APIVersion), len(r.Kind))
	if r.Request != nil {
		longest = max(longest, len(r.Request.UID), len(r.Request.Operation), len(r.Request.SubResource))
	}
	return longest <= maxName
}

// maxQuoted bounds a text that quotes what a client sent, in bytes: an error may hold a whole value of megabytes.
const maxQuoted = 1 << 10

// update reports whether there is a stored object.
func (r *request[New, Old]) update() bool { return r.Operation == string(admissionv1.Update) }

// decodeReview reads a review with the API server's own semantics of JSON.
func decodeReview[New, Old any](body []byte) (*request[New, Old], error) {
	var in review[New, Old]
	if err := apijson.Unmarshal(body, &in); err != nil {
		return nil, fmt.Errorf("the review cannot be read: %w", err)
	}
	if !in.short() {
		return nil, fmt.Errorf("its kind, version, uid, operation or subresource has more than %d bytes", maxName)
	}
	if in.Kind != "AdmissionReview" || in.APIVersion != admissionv1.SchemeGroupVersion.String() {
		return nil, fmt.Errorf("kind %q of %q is not an AdmissionReview of %s", in.Kind, in.APIVersion,
			admissionv1.SchemeGroupVersion)
	}
	if in.Request == nil || in.Request.UID == "" {
		return nil, errors.New("the review has no request, or one without a uid")
	}
	req := in.Request
	switch {
	case req.Object == nil:
		return nil, fmt.Errorf("the review of operation %q has no object", req.Operation)
	case req.update() != (req.OldObject != nil):
		return nil, fmt.Errorf("the review of operation %q does not fit its oldObject", req.Operation)
	}
	return req, nil
}

// response returns the answer to a review with this verdict.
func response(v *verdict.Verdict) (*admissionv1.AdmissionResponse, error) {
	answer := &admissionv1.AdmissionResponse{Allowed: v.Decision == verdict.Allow,
		AuditAnnotations: auditAnnotations(v)}
	if !answer.Allowed {
		answer.Result = refusal(v.Refusal())
		answer.Result.Details.Causes = rules.Causes(v)
	}
	answer.Warnings = v.WarningTexts()
	if len(v.Changes) == 0 {
		return answer, nil
	}
	// A diff of two decoded objects would cost more than all the rest of a request.
	answer.PatchType = new(admissionv1.PatchTypeJSONPatch)
	var err error
	answer.Patch, err = json.Marshal(verdict.Patch(v.Changes))
	return answer, err
}

// refusal is the status of a refused review. Refusals by rules are 403 Forbidden and nothing else: OLM
// retries these without a limit, and fails the plan on every other code (reference: what a rejection
// does to OLM).
func refusal(message string) *metav1.Status {
	return &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
		Message: message, Details: &metav1.StatusDetails{}}
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
			parts = append(parts, strings.TrimSpace(string(r.Rule)+" "+r.From.String()))
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
