package backstop

import (
	"encoding/json"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/snapshot"
)

// snapshotOf has objects of a kind, by UID and resourceVersion.
func snapshotOf(t *testing.T, kind *snapshot.Kind, versions map[types.UID]string) *snapshot.Snapshot {
	t.Helper()
	var objects []*snapshot.Object
	for uid, version := range versions {
		raw, err := json.Marshal(map[string]any{"apiVersion": kind.GroupVersion().String(), "kind": kind.Kind,
			"metadata": map[string]any{"namespace": "policies", "name": string(uid), "uid": string(uid),
				"resourceVersion": version}})
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, (&snapshot.Reader{}).Read(kind, raw))
	}
	return (&snapshot.Builder{}).Put(time.Now(), objects...)
}

// TestIncludes: what a list has and a snapshot has not, and the other way round, makes the snapshot older.
func TestIncludes(t *testing.T) {
	const newest = "20"
	stored := map[types.UID]string{"a": "7", "b": "12"}
	for _, test := range []struct {
		name     string
		snapshot map[types.UID]string
		want     bool
	}{
		{name: "the same", snapshot: map[types.UID]string{"a": "7", "b": "12"}, want: true},
		{name: "an edit is not known", snapshot: map[types.UID]string{"a": "7", "b": "9"}},
		{name: "a new policy is not known", snapshot: map[types.UID]string{"a": "7"}},
		{name: "a deletion is not known", snapshot: map[types.UID]string{"a": "7", "b": "12", "c": "13"}},
		{name: "edited after the list", snapshot: map[types.UID]string{"a": "21", "b": "12"}, want: true},
		{name: "created after the list", snapshot: map[types.UID]string{"a": "7", "b": "12", "c": "103"}, want: true},
		{name: "nothing is known", snapshot: nil},
	} {
		for _, kind := range []*snapshot.Kind{snapshot.OperatorPolicies, snapshot.Constraints} {
			if got := includes(snapshotOf(t, kind, test.snapshot), kind, stored, newest); got != test.want {
				t.Errorf("%s, %s: got %t", test.name, kind.Kind, got)
			}
		}
	}
}
