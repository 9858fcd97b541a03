//go:build !race

package snapshot_test

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/opgate/opgate/internal/cases"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/snapshot"
)

var reader snapshot.Reader

// most is how many bytes are retained for a byte that is stored, allowance what an object may take whatever its size.
// The sizes are in bytes: a shape is tried in a small one, and the worst is stored in the largest that etcd accepts,
// fifteen times.
const (
	most      = 8
	allowance = 200 << 10
	small     = 128 << 10
	large     = 1_200_000
	fifteen   = 15
)

// retainedByKind bounds, in MiB, what fifteen objects of each kind retain, whatever a tenant writes into them. A kind
// that is new needs a row.
var retainedByKind = map[*snapshot.Kind]int64{
	snapshot.OperatorPolicies: 160, snapshot.Constraints: 110, snapshot.Policies: 110, snapshot.PolicySets: 110,
	snapshot.Namespaces: 110, snapshot.Subscriptions: 20, snapshot.InstallPlans: 40,
	snapshot.ClusterServiceVersions: 20, snapshot.OperatorGroups: 20, snapshot.OperatorConditions: 5,
	snapshot.CatalogSources: 20, snapshot.Pods: 5, snapshot.Services: 5, snapshot.Records: 5, snapshot.Deployments: 5,
	snapshot.CustomResourceDefinitions: 60, snapshot.ClusterExtensions: 5, snapshot.ClusterObjectSets: 5,
}

// TestG35MemoryOfEveryKind fills each field of each kind with what its schema admits and takes the most memory: long
// lists, many keys, deep values, texts. f1 was PolicySets, of which fifteen took more than 300 MiB.
func TestG35MemoryOfEveryKind(t *testing.T) {
	type shapeOfKind struct {
		kind *snapshot.Kind
		shape
	}
	var all []shapeOfKind
	for _, kind := range snapshot.Kinds() {
		for _, s := range append(shapesOf(t, kind), written[kind]...) {
			all = append(all, shapeOfKind{kind, s})
		}
	}
	shapes := map[*snapshot.Kind][]shape{}
	for _, s := range cases.Some(all) {
		shapes[s.kind] = append(shapes[s.kind], s.shape)
	}
	for _, kind := range snapshot.Kinds() {
		t.Run(kind.Resource, func(t *testing.T) {
			bound, ok := retainedByKind[kind]
			if !ok || len(shapes[kind]) == 0 {
				t.Fatal("the kind has no row in retainedByKind, or no shape")
			}
			var worst shape
			var taken int64
			for _, s := range shapes[kind] {
				raw := s.named(kind, small, 0)
				kept := retained(func() any { return reader.Read(kind, raw) })
				if kept > taken {
					worst, taken = s, kept
				}
				if kept > int64(most*len(raw)+allowance) {
					t.Errorf("%s: %d bytes are retained for %d", s.name, kept, len(raw))
				}
			}
			raws := make([][]byte, fifteen)
			for i := range raws {
				raws[i] = worst.named(kind, large, i)
			}
			before := liveHeap()
			builder := &snapshot.Builder{}
			for _, raw := range raws {
				builder.Put(time.Time{}, reader.Read(kind, raw))
			}
			kept := liveHeap() - before
			runtime.KeepAlive(builder)
			runtime.KeepAlive(raws)
			t.Logf("%d shapes; worst is %s: %.1f bytes for each, and %d MiB for %d objects", len(shapes[kind]), worst.name,
				float64(taken)/small, kept>>20, fifteen)
			if kept > bound<<20 {
				t.Errorf("%s: %d objects retain %d MiB, want at most %d", worst.name, fifteen, kept>>20, bound)
			}
		})
	}
}

// named returns a shape in a size, as an object with a name of its own.
func (s *shape) named(kind *snapshot.Kind, size, n int) []byte {
	name := fmt.Sprint("o", n)
	if kind == snapshot.Records {
		name = state.RecordName(name)
	}
	return bytes.ReplaceAll(s.of(size), []byte("@name@"), []byte(name))
}

// written are shapes of several fields, which the schemas alone do not yield.
var written = map[*snapshot.Kind][]shape{
	snapshot.Policies: {{name: "dependencies of all templates",
		object: []byte(`{"metadata":{"namespace":"shop","name":"@name@"},"spec":` + hole + `}`),
		fill: func(size int) string {
			dependencies := repeated("[", `{"kind":"A","name":"`+counter+`","compliance":"Pending"}`, "]", 500)(size)
			return `{"dependencies":` + dependencies + `,"policy-templates":` + repeated("[",
				`{"objectDefinition":{"apiVersion":"v1","kind":"A","metadata":{"name":"`+counter+
					`"}},"extraDependencies":[{"kind":"B","name":"b","compliance":"Pending"}]}`,
				"]", 500)(size) + "}"
		}}},
}

// retained returns how many bytes of the heap a value takes. Where little was allocated it returns that, since
// measuring takes long.
func retained(read func() any) int64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	before := stats.TotalAlloc
	_ = read()
	runtime.ReadMemStats(&stats)
	if allocated := stats.TotalAlloc - before; allocated < 3*small {
		return int64(allocated) / 8 // less than 3*small
	}
	live := liveHeap()
	value := read()
	kept := liveHeap() - live
	runtime.KeepAlive(value)
	return kept
}

// liveHeap returns the bytes of all reachable objects.
func liveHeap() int64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
