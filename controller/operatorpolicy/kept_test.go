package operatorpolicy

import (
	"encoding/json"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/snapshot"
)

// stored returns an object in the form that the store retains.
func stored(kind *snapshot.Kind, raw string) *snapshot.Object {
	var reader snapshot.Reader
	return reader.Read(kind, []byte(raw))
}

// TestA4Kept: of the largest objects that tenants may store almost nothing is retained, and reading them takes no more
// than their size.
func TestA4Kept(t *testing.T) {
	large := strings.TrimSuffix(strings.Repeat(`{"key":""},`, 120_000), ",")
	for name, raw := range map[string]string{
		"tolerations": `{"metadata":{"name":"a","namespace":"shop"},"spec":{"name":"etcd","config":{"tolerations":[` +
			large + `]}}}`,
		"labels": `{"metadata":{"name":"a","namespace":"shop","labels":{` + strings.Repeat(`"a":"",`, 150_000) +
			`"b":""}},"spec":{"name":"etcd"}}`,
		"owners": `{"metadata":{"name":"a","namespace":"shop","ownerReferences":[` + large +
			`]},"spec":{"name":"etcd"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			object := stored(snapshot.Subscriptions, raw)
			runtime.ReadMemStats(&after)
			if took := after.TotalAlloc - before.TotalAlloc; took > 2*uint64(len(raw)) {
				t.Errorf("reading %d bytes took %d", len(raw), took)
			}
			if kept, err := json.Marshal(object.Subscription()); err != nil || len(kept) > 2000 {
				t.Errorf("%d bytes are kept (%v)", len(kept), err)
			}
			if s := object.Subscription(); s.Spec.Package != "etcd" ||
				len(s.Metadata.OwnerReferences) > 0 != (name == "owners") {
				t.Errorf("%+v", s)
			}
		})
	}
}

// TestKeptIsAllThatIsRead checks that everything that is read of a ClusterServiceVersion is retained in the store.
func TestKeptIsAllThatIsRead(t *testing.T) {
	raw := `{"apiVersion":"operators.coreos.com/v1alpha1","kind":"ClusterServiceVersion","metadata":{"name":"etcd.v1","namespace":"shop","uid":"1",
		"creationTimestamp":"2026-11-21T09:00:00Z","deletionTimestamp":"2026-11-21T10:00:00Z","generation":2,"resourceVersion":"7",
		"labels":{},"annotations":{"olm.operatorNamespace":"operators",
		"operatorframework.io/properties":"{\"properties\":[{\"type\":\"olm.package\",\"value\":{\"packageName\":\"etcd\",\"version\":\"1.0.0\"}}]}"}},
		"spec":{"version":"1.0.0","install":{"spec":{"deployments":[{"name":"etcd"}]}},"installModes":[{"type":"OwnNamespace","supported":true}]},
		"status":{"phase":"Failed","reason":"RequirementsNotMet","message":"not done","requirementStatus":[{"kind":"Secret","name":"a","status":"Present"},
			{"kind":"Secret","name":"b","status":"NotPresent","message":"none"}]}}`
	copied := strings.Replace(raw, `"labels":{}`, `"labels":{"olm.copiedFrom":"elsewhere"}`, 1)
	if read := stored(snapshot.ClusterServiceVersions, copied).CSV(); read.Metadata.Labels.CopiedFrom != "elsewhere" ||
		read.Status.Phase != "Failed" {
		t.Errorf("of a copy %+v is read", read)
	}
	read := stored(snapshot.ClusterServiceVersions, raw).CSV()
	for field, got := range map[string]string{"2026-11-21T09:00:00Z": read.Metadata.CreationTimestamp,
		"2026-11-21T10:00:00Z": read.Metadata.DeletionTimestamp,
		"operators":            read.Metadata.Annotations.OperatorNamespace, "etcd": read.Bundle.Package,
		"1.0.0": read.Bundle.Version} {
		if got != field {
			t.Errorf("%q is read, want %q", got, field)
		}
	}
	want := olm.CSVStatus{Phase: "Failed", Reason: "RequirementsNotMet", Message: "not done",
		Deployments:  []string{"etcd"},
		InstallModes: map[string]bool{"OwnNamespace": true}, Unmet: []string{"Secret b (NotPresent): none"}}
	if !reflect.DeepEqual(read.Status, want) {
		t.Errorf("the status is %+v, want %+v", read.Status, want)
	}
}
