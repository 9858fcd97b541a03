package conversion

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrlconversion "sigs.k8s.io/controller-runtime/pkg/webhook/conversion"

	policyv1beta1 "github.com/opgate/opgate/api/policy/v1beta1"
	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
)

// Path is where the webhook is served.
const Path = "/convert"

// maxReview bounds a ConversionReview, in bytes. The API server may send all objects of a LIST in one; since it decodes
// what is stored object by object, that of Kubernetes 1.36 sends one in each.
const maxReview = 256 << 20

// webhook answers ConversionReviews.
type webhook struct {
	scheme    *runtime.Scheme
	converter ctrlconversion.Converter
	log       logr.Logger
}

// NewWebhook makes the handler of ConversionReviews for OperatorPolicy. It knows nothing of the cluster, so
// it answers from the first moment on: the API server needs it to list policies for the snapshot.
func NewWebhook(log logr.Logger) (http.Handler, error) {
	hub, spoke := document(policyv1beta2.GroupVersion), document(policyv1beta1.GroupVersion)
	scheme := runtime.NewScheme()
	for _, known := range []*unstructured.Unstructured{hub, spoke} {
		scheme.AddKnownTypeWithName(known.GroupVersionKind(), known)
	}
	converter, err := ctrlconversion.NewHubSpokeConverter(hub, ctrlconversion.NewSpokeConverter(spoke, by(ToV1beta1), by(ToV1beta2)))(scheme)
	if err != nil {
		return nil, fmt.Errorf("make the converter of OperatorPolicy: %w", err)
	}
	return &webhook{scheme: scheme, converter: converter, log: log}, nil
}

// document is an OperatorPolicy of a version. It is kept as it came, since a typed one would drop fields.
func document(version schema.GroupVersion) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(version.WithKind(policyv1beta2.Kind))
	return u
}

// by makes a function on contents one on documents.
func by(convert func(map[string]any) map[string]any) func(context.Context, *unstructured.Unstructured, *unstructured.Unstructured) error {
	return func(_ context.Context, from, to *unstructured.Unstructured) error {
		version := to.GetAPIVersion()
		to.Object = convert(from.Object)
		to.SetAPIVersion(version)
		return nil
	}
}

func (w *webhook) ServeHTTP(response http.ResponseWriter, r *http.Request) {
	review := &apiextensionsv1.ConversionReview{}
	err := json.NewDecoder(http.MaxBytesReader(response, r.Body, maxReview)).Decode(review)
	if err == nil && review.Request == nil {
		err = errors.New("it has no request")
	}
	if err != nil {
		w.log.Error(err, "conversion review cannot be read")
		http.Error(response, "the conversion review cannot be read: "+err.Error(), http.StatusBadRequest)
		return
	}
	review.Response = w.convert(r.Context(), review.Request)
	review.Request = nil
	response.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(response).Encode(review); err != nil {
		w.log.V(1).Info("conversion answer not sent", "error", err.Error())
	}
}

// convert converts all objects of a request, or none: the API server takes no half answer. The message names
// the object.
func (w *webhook) convert(ctx context.Context, request *apiextensionsv1.ConversionRequest) *apiextensionsv1.ConversionResponse {
	answer := &apiextensionsv1.ConversionResponse{UID: request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
	objects := make([]runtime.RawExtension, len(request.Objects))
	for i, object := range request.Objects {
		converted, err := w.convertObject(ctx, object.Raw, request.DesiredAPIVersion)
		if err != nil {
			w.log.Error(err, "object not converted", "request", request.UID, "to", request.DesiredAPIVersion)
			answer.Result = metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonInvalid, Code: http.StatusUnprocessableEntity,
				Message: fmt.Sprintf("object %d of %d: %s", i+1, len(request.Objects), err)}
			return answer
		}
		objects[i].Object = converted
	}
	answer.ConvertedObjects = objects
	return answer
}

func (w *webhook) convertObject(ctx context.Context, raw []byte, desired string) (runtime.Object, error) {
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
