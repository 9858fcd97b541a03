package olm_test

import (
	"reflect"
	"testing"

	kjson "sigs.k8s.io/json"

	"github.com/opgate/opgate/internal/apijson"
	"github.com/opgate/opgate/olm"
)

// review has both objects where a review has them.
type review[New, Old any] struct {
	Request struct {
		UID       string `json:"uid"`
		DryRun    bool   `json:"dryRun"`
		Object    *New   `json:"object"`
		OldObject *Old   `json:"oldObject"`
	} `json:"request"`
}

// sameReview decodes a review as the gate does, and as the API server would.
func sameReview[New, Old any](t *testing.T, body []byte) {
	t.Helper()
	var got, want review[New, Old]
	errGot, errWant := apijson.Unmarshal(body, &got), kjson.UnmarshalCaseSensitivePreserveInts(body, &want)
	if (errGot == nil) != (errWant == nil) {
		t.Fatalf("%T of %.2000q: error %v, want %v", got, body, errGot, errWant)
	}
	if errWant == nil && !reflect.DeepEqual(got, want) {
		t.Errorf("%T of %.2000q:\n%+v\nwant\n%+v", got, body, got, want)
	}
}

// FuzzDecode looks for a review of which the gate reads something else than the API server. It is FuzzDecodeReview of
// package admission with a third of the dependencies: all of them are instrumented, and the counters of all are
// compared after each execution.
func FuzzDecode(f *testing.F) {
	for _, text := range []string{
		`{"request":{"uid":"1","dryRun":null,"object":{"metadata":{"name":"a","annotations":null},"spec":{"name":"etcd"}}}}`,
		`{"request":{"object":{"metadata":{"annotations":{"operatorframework.io/properties":"{}"},"annotations":{"opgate.io/consent":"a"}},"spec":{"install":{"spec":{"clusterPermissions":[{"rules":[{"verbs":["*"]}]}]}}}}}}`,
		`{"request":{"object":{"spec":{"targetNamespaces":["a"],"selector":{"matchLabels":{"a":"b"}},"selector":null}}}}`,
		`{"request":{"object":{"spec":{"sourceType":"grpc","priority":-1,"image":"a@sha256:00"},"spec":null}}}`,
		`{"request":{"object":{"spec":{"approved":true,"approval":"Manual","generation":1,"clusterServiceVersionNames":["a"]}},"object":{"spec":{"approved":null}}}}`,
		`{"request":{"oldObject":{"status":{"plan":[{"resource":{"kind":"ClusterServiceVersion","manifest":"{\"metadata\":{\"annotations\":{\"operatorframework.io/properties\":\"{}\"}}}"}},null]}}}}`,
		`{"request":{"oldObject":{"status":{"plan":[{"resource":{"manifest":1}}],"conditions":null,"bundleLookups":[{"path":"a"}],"bundleLookups":[{}]}}}}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		sameReview[olm.Subscription, olm.Subscription](t, body)
		sameReview[olm.InstallPlanHead, olm.InstallPlan](t, body)
		sameReview[olm.CSV, olm.CSV](t, body)
		sameReview[olm.CatalogSource, olm.CatalogSource](t, body)
		sameReview[olm.OperatorGroup, olm.OperatorGroup](t, body)
	})
}

// TestFinalizersFailSafe: finalizers that are too large to be stored, or of another type, do not count as none.
func TestFinalizersFailSafe(t *testing.T) {
	for finalizers, want := range map[string]bool{`null`: false, `[]`: false, `[ ]`: false, `["a"]`: true,
		`"too large to be kept"`: true, `5`: false, `true`: true} {
		s, err := olm.Decode[olm.Subscription]([]byte(`{"metadata":{"finalizers":` + finalizers + `}}`))
		if err != nil || bool(s.Metadata.Finalizers) != want {
			t.Errorf("%s: %+v (%v)", finalizers, s, err)
		}
	}
}
