package conversion

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrlconversion "sigs.k8s.io/controller-runtime/pkg/webhook/conversion"

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
	scheme    *runtime.Scheme
	converter ctrlconversion.Converter
}

// NewWebhook returns the handler of ConversionReviews for OperatorPolicy. It depends on nothing in the cluster and
// answers as soon as the process serves: the API server needs it to list policies for the snapshot.
func NewWebhook(o Options) (http.Handler, error) {
	if o.Budget == nil || o.Panics == nil {
		return nil, errors.New("conversion options: Budget and Panics are required")
	}
	o.Panics.Expect("conversion")
	hub, spoke := document(policyv1beta2.GroupVersion), document(policyv1beta1.GroupVersion)
	scheme := runtime.NewScheme()
	for _, known := range []*unstructured.Unstructured{hub, spoke} {
		scheme.AddKnownTypeWithName(known.GroupVersionKind(), known)
	}
	converter, err := ctrlconversion.NewHubSpokeConverter(hub,
		ctrlconversion.NewSpokeConverter(spoke, by(ToV1beta1), by(ToV1beta2)))(scheme)
	if err != nil {
		return nil, fmt.Errorf("make the converter of OperatorPolicy: %w", err)
	}
	return &webhook{Options: o, scheme: scheme, converter: converter}, nil
}

// document is an OperatorPolicy of a version. It is kept as it came, since a typed one would drop fields.
func document(version schema.GroupVersion) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(version.WithKind(policyv1beta2.Kind))
	return u
}

// by returns a function on documents for one on contents.
func by(
	convert func(map[string]any) map[string]any,
) func(context.Context, *unstructured.Unstructured, *unstructured.Unstructured) error {
	return func(_ context.Context, from, to *unstructured.Unstructured) error {
		version := to.GetAPIVersion()
		to.Object = convert(from.Object)
		to.SetAPIVersion(version)
		return nil
	}
}

// ServeHTTP answers one review: 429 if there is no memory for it at the moment, which the API server retries; a failure
// if a conversion panics. The objects are not modified then.
func (w *webhook) ServeHTTP(response http.ResponseWriter, r *http.Request) {
	body := w.Budget.For(r, inflight.Caller{})
	defer body.Close()
	err := body.Read(response, r)
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
			answer = w.convert(r.Context(), &asked, len(body.JSON))
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
func (w *webhook) convert(ctx context.Context, asked *review, size int) *answer {
	converted := &answer{result: metav1.Status{Status: metav1.StatusSuccess}}
	converted.objects.Grow(size)
	encoder := json.NewEncoder(&converted.objects)
	encoder.SetEscapeHTML(false) // it would take six bytes where one came
	for i, object := range asked.Request.Objects {
		to, err := w.convertObject(ctx, object, asked.Request.DesiredAPIVersion)
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

func (w *webhook) convertObject(ctx context.Context, raw []byte, desired string) (*unstructured.Unstructured, error) {
	from := &unstructured.Unstructured{}
	if err := decode(raw, &from.Object); err != nil {
		return nil, fmt.Errorf("it cannot be read: %w", err)
	}
	name := fmt.Sprintf("%s %s/%s", from.GetKind(), from.GetNamespace(), from.GetName())
	to := &unstructured.Unstructured{}
	to.SetAPIVersion(desired)
	to.SetKind(from.GetKind())
	for _, u := range []*unstructured.Unstructured{from, to} {
		if !w.scheme.Recognizes(u.GroupVersionKind()) {
			return nil, fmt.Errorf("%s: %s %q is not converted here; %s and %s of OperatorPolicy are", name,
				u.GetKind(), u.GetAPIVersion(), policyv1beta1.GroupVersion, policyv1beta2.GroupVersion)
		}
	}
	if from.GetAPIVersion() == desired {
		return from, nil
	}
	if err := w.converter.ConvertObject(ctx, from, to); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return to, nil
}
