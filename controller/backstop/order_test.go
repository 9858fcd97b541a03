package backstop

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/snapshot"
)

// snapshotOf has objects of one of sources, by UID and resourceVersion.
func snapshotOf(t *testing.T, of int, versions map[types.UID]string) *snapshot.Snapshot {
	t.Helper()
	var objects []*snapshot.Object
	kind := sources[of].kind
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
		for i, source := range sources {
			if got := includes(snapshotOf(t, i, test.snapshot), source.kind, stored, newest); got != test.want {
				t.Errorf("%s, %s: got %t", test.name, source.kind.Kind, got)
			}
		}
	}
}

// TestNeverBack: an object with newer policies, or newer Constraints, is replaced only after a list has shown that the
// snapshot has all of them.
func TestNeverBack(t *testing.T) {
	for i, source := range sources {
		t.Run(source.kind.Kind, func(t *testing.T) {
			at := func(version string) position { // what is known of the other kind is newer than all of this
				p := position{"9000", "9000"}
				p[i] = version
				return p
			}
			live := &unstructured.Unstructured{Object: map[string]any{}}
			live.SetResourceVersion("30")
			live.SetAnnotations(at("25").annotations())
			r := &reconciler{newest: at("20")}
			r.compiled.newest = r.position(snapshotOf(t, i, map[types.UID]string{"a": "7", "b": "12"}))
			if r.compiled.newest != at("20") {
				t.Errorf("compiled up to %s, want 20: the list is newer than the objects", r.compiled.newest)
			}
			if err := r.behind(live); !errors.Is(err, errBehind) || r.newest != (position{}) {
				t.Errorf("got %v, listed again: %t", err, r.newest == position{})
			}

			r.newest = at("26")
			r.compiled.newest = r.position(snapshotOf(t, i, map[types.UID]string{"a": "7", "b": "103"}))
			if err := r.behind(live); err != nil || r.compiled.newest != at("103") {
				t.Errorf("compiled up to %s: %v", r.compiled.newest, err)
			}

			// Another client writes the annotation, or etcd was restored from a backup.
			live.SetAnnotations(at("99999999999999999999999").annotations())
			live.SetResourceVersion("31")
			if err := r.behind(live); !errors.Is(err, errBehind) {
				t.Errorf("got %v", err)
			}
			r.newest = at("104")
			if err := r.behind(live); err != nil {
				t.Errorf("an annotation blocks all writes: %v", err)
			}
		})
	}
}

// TestByReplica: what another replica wrote was not changed by another client.
func TestByReplica(t *testing.T) {
	live := &unstructured.Unstructured{Object: map[string]any{}}
	last := &written{by: "first"}
	for writer, want := range map[string]bool{"first": false, "second": true} {
		live.SetAnnotations(map[string]string{writerAnnotation: writer})
		if got := last.byReplica(live); got != want {
			t.Errorf("written by %s: got %t", writer, got)
		}
	}
	live.SetAnnotations(nil)
	if last.byReplica(live) || last.byReplica(nil) {
		t.Error("removing the annotation, or the object, passes for a write of a replica")
	}
}
