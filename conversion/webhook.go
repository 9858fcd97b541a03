package conversion

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	policyv1beta1 "github.com/opgate/opgate/api/policy/v1beta1"
	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/inflight"
	"github.com/opgate/opgate/internal/panics"
)

// Path is where the webhook is served.
const Path = "/convert"

// Options configure the webhook.
type Options struct {
	// Budget bounds the memory for reviews. Required.
	Budget *inflight.Budget
	// Panics records panics of converting. Required.
	Panics *panics.Recorder
	// Log receives failed conversions at V(0). Default: none.
	Log logr.Logger
}

// webhook answers ConversionReviews.
type webhook struct {
	Options
	// converters convert the content of an OperatorPolicy to an apiVersion.
	converters map[string]func(content map[string]any) map[string]any
}

// NewWebhook returns the handler of ConversionReviews for OperatorPolicy. It depends on nothing in the cluster and
// answers as soon as the process serves: the API server needs it to list policies for the snapshot.
func NewWebhook(o Options) http.Handler {
	o.Panics.Expect("conversion")
	return &webhook{Options: o, converters: map[string]func(map[string]any) map[string]any{
		policyv1beta1.GroupVersion.String(): ToV1beta1, policyv1beta2.GroupVersion.String(): ToV1beta2}}
}

// ServeHTTP answers one review: 429 if there is no memory for it at the moment, which the API server retries; a failure
// if a conversion panics. The objects are not modified then.
func (w *webhook) ServeHTTP(response http.ResponseWriter, r *http.Request) {
	body := w.Budget.For(r, inflight.Caller{})
	defer body.Close()
	err := body.Read(r.Context(), response, r)
	if errors.Is(err, inflight.ErrBusy) {
		inflight.RejectBusy(response)
		return
	}
	var asked review
	var answer *answer
	panicked := w.Panics.Run("conversion", func() {
		if err == nil {
			err = asked.read(body.JSON)
		}
		if err == nil {
			answer = w.convert(&asked, len(body.JSON))
		}
	})
	switch {
	case panicked && asked.Request == nil:
		http.Error(response, "opgate failed while it read the conversion review: its log says where",
			http.StatusInternalServerError)
		return
	case panicked:
		answer = failure(http.StatusInternalServerError, metav1.StatusReasonInternalError,
			"opgate failed while it converted: the log of its pods says where")
	case err != nil:
		w.Log.Error(err, "conversion review cannot be read")
		http.Error(response, "the conversion review cannot be read: "+err.Error(), http.StatusBadRequest)
		return
	}
	body.EndWork()
	response.Header().Set("Content-Type", "application/json")
	if err := answer.write(response, &asked); err != nil {
		w.Log.V(1).Info("conversion answer not sent", "error", err.Error())
	}
}

// convert converts all objects of a review, or none: the API server takes no half answer. The message names the object.
// They are decoded one at a time; size is about what they take together once they are converted, in bytes.
func (w *webhook) convert(asked *review, size int) *answer {
	converted := &answer{result: metav1.Status{Status: metav1.StatusSuccess}}
	converted.objects.Grow(size)
	encoder := json.NewEncoder(&converted.objects)
	encoder.SetEscapeHTML(false) // it would take six bytes where one came
	for i, object := range asked.Request.Objects {
		to, err := w.convertObject(object, asked.Request.DesiredAPIVersion)
		if err == nil {
			if i > 0 {
				converted.objects.WriteByte(',')
			}
			err = encoder.Encode(to.Object)
		}
		if err != nil {
			w.Log.Error(err, "object not converted", "request", asked.Request.UID,
				"to", asked.Request.DesiredAPIVersion)
			return failure(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid,
				fmt.Sprintf("object %d of %d: %s", i+1, len(asked.Request.Objects), err))
		}
	}
	return converted
}

// convertObject returns an object in an apiVersion, untyped, since types would drop unknown fields.
func (w *webhook) convertObject(raw []byte, desired string) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	if err := decode(raw, &u.Object); err != nil {
		return nil, fmt.Errorf("it cannot be read: %w", err)
	}
	for _, version := range []string{u.GetAPIVersion(), desired} {
		if u.GetKind() != policyv1beta2.Kind || w.converters[version] == nil {
			return nil, fmt.Errorf("%s %s/%s: %s %q is not converted here; %s and %s of OperatorPolicy are",
				u.GetKind(), u.GetNamespace(), u.GetName(), u.GetKind(), version, policyv1beta1.GroupVersion,
				policyv1beta2.GroupVersion)
		}
	}
	if u.GetAPIVersion() != desired {
		u.Object = w.converters[desired](u.Object)
		u.SetAPIVersion(desired)
	}
	return u, nil
}
