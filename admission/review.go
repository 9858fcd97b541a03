package admission

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	kjson "sigs.k8s.io/json"
)

// maxBody bounds a review in bytes. The API server takes objects of up to 3 MiB, and a review of an update
// holds two (threat G18).
const maxBody = 8 << 20

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
	User        authenticationv1.UserInfo `json:"userInfo"`
	Object      *New                      `json:"object"`
	OldObject   *Old                      `json:"oldObject"`
}

// update tells whether there is a stored object.
func (r *request[New, Old]) update() bool { return r.Operation == string(admissionv1.Update) }

// bodyTimeout bounds how long a client may take to send a review: the API server gives up on a webhook
// after 5 s, and a client that stalls must not keep the process from stopping (threats G20, G23).
const bodyTimeout = 10 * time.Second

// readBody reads at most maxBody bytes in at most bodyTimeout.
func readBody(w http.ResponseWriter, r *http.Request, now time.Time) ([]byte, error) {
	if r.ContentLength > maxBody {
		return nil, errTooLarge
	}
	// Where there is no connection to set a deadline on, as in tests, there is nobody to wait for either.
	connection := http.NewResponseController(w)
	bounded := connection.SetReadDeadline(now.Add(bodyTimeout)) == nil
	body, err := readAll(http.MaxBytesReader(w, r.Body, maxBody), r.ContentLength)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, errTooLarge
	case err != nil:
		// The deadline stays: the server would wait for the rest of the body before it lets go of the connection.
		return nil, fmt.Errorf("read the review: %w", err)
	}
	if bounded {
		err = connection.SetReadDeadline(time.Time{})
	}
	return body, err
}

// readAll reads into a buffer sized once where the client says how much will come.
func readAll(body io.Reader, length int64) ([]byte, error) {
	if length <= 0 {
		return io.ReadAll(body)
	}
	buf := make([]byte, length)
	_, err := io.ReadFull(body, buf)
	return buf, err
}

var errTooLarge = fmt.Errorf("the review is larger than %d MiB", maxBody>>20)

// decodeReview reads a review with the API server's own semantics of JSON. The UID is returned even where
// the rest is wrong, so that the refusal can be matched to its request.
func decodeReview[New, Old any](body []byte) (*request[New, Old], string, error) {
	var in review[New, Old]
	if err := kjson.UnmarshalCaseSensitivePreserveInts(body, &in); err != nil {
		return nil, salvageUID(body), fmt.Errorf("the review cannot be read: %w", err)
	}
	if in.Kind != "AdmissionReview" || in.APIVersion != admissionv1.SchemeGroupVersion.String() {
		return nil, salvageUID(body), fmt.Errorf("kind %q of %q is not an AdmissionReview of %s", in.Kind, in.APIVersion, admissionv1.SchemeGroupVersion)
	}
	if in.Request == nil || in.Request.UID == "" {
		return nil, "", errors.New("the review has no request, or one without a uid")
	}
	req := in.Request
	switch {
	case req.Object == nil:
		return nil, req.UID, fmt.Errorf("the review of operation %q has no object", req.Operation)
	case req.update() != (req.OldObject != nil):
		return nil, req.UID, fmt.Errorf("the review of operation %q does not fit its oldObject", req.Operation)
	}
	return req, req.UID, nil
}

// salvageUID reads no more than the UID of a review whose objects do not decode.
func salvageUID(body []byte) string {
	var in struct {
		Request struct {
			UID string `json:"uid"`
		} `json:"request"`
	}
	if kjson.UnmarshalCaseSensitivePreserveInts(body, &in) != nil {
		return ""
	}
	return in.Request.UID
}
