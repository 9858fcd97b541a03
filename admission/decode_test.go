package admission

import (
	"reflect"
	"testing"

	kjson "sigs.k8s.io/json"

	"github.com/opgate/opgate/internal/apijson"
	"github.com/opgate/opgate/olm"
)

// sameReview decodes a review as one endpoint does, and as the API server would.
func sameReview[New, Old any](t *testing.T, body []byte) {
	t.Helper()
	var got, want review[New, Old]
	errGot, errWant := apijson.Unmarshal(body, &got), kjson.UnmarshalCaseSensitivePreserveInts(body, &want)
	if (errGot == nil) != (errWant == nil) {
		t.Fatalf("%T: error %v, want %v", got, errGot, errWant)
	}
	if errWant == nil && !reflect.DeepEqual(got, want) {
		t.Errorf("%T of %.2000q:\n%+v\nwant\n%+v", got, body, got, want)
	}
}

// FuzzDecodeReview looks for a review of which the gate reads something else than the API server.
func FuzzDecodeReview(f *testing.F) {
	f.Add(payload(f, 1<<10))
	for _, text := range []string{
		`{"request":{"uid":"1","dryRun":null,"userInfo":{"groups":["a",null],"extra":{"a":["b"]}},"object":{"metadata":{"name":"a","annotations":null},"spec":{"name":"etcd"}}}}`,
		`{"request":{"object":{"metadata":{"annotations":{"operatorframework.io/properties":"{}"},"annotations":{"opgate.io/consent":"a"}},"spec":{"install":{"spec":{"clusterPermissions":[{"rules":[{"verbs":["*"]}]}]}}}}}}`,
		`{"request":{"object":{"spec":{"targetNamespaces":["a"],"selector":{"matchLabels":{"a":"b"}},"selector":null}}}}`,
		`{"request":{"object":{"spec":{"sourceType":"grpc","priority":-1,"image":"a@sha256:00"},"spec":null}}}`,
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
