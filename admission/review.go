package admission

import (
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/opgate/opgate/internal/apijson"
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
