package snapshot

import (
	"slices"
	"testing"
	"time"
)

// TestSubscribeStartsWithWhatExists checks that the first change has everything, so that subscribers need no list of
// their own.
func TestSubscribeStartsWithWhatExists(t *testing.T) {
	var b Builder
	store := NewStore(b.Put(time.Time{}, read(Namespaces, `{"metadata":{"name":"shop"}}`),
		read(Namespaces, `{"metadata":{"name":"bank"}}`),
		read(CatalogSources, `{"metadata":{"name":"community","namespace":"olm"}}`)))
	var first *Change
	store.Subscribe(func(c *Change) { first = c })()
	if first == nil || first.Snapshot != store.Load() || !first.Constraints ||
		!slices.Equal(first.Namespaces, []string{"bank", "shop"}) {
		t.Fatalf("the first change is %+v", first)
	}
	if len(first.Objects) != 1 || first.Objects[0].Old != nil || first.Objects[0].Now.Name != "community" {
		t.Errorf("its objects are %+v", first.Objects)
	}
	(&Store{}).Subscribe(func(*Change) { t.Error("called without a snapshot") })
}
