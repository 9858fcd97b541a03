package check

import (
	"slices"
	"testing"

	"github.com/opgate/opgate/snapshot"
)

// TestKinds: check reads all kinds that every replica of the gate judges by, but no state of Opgate itself.
func TestKinds(t *testing.T) {
	for _, watched := range snapshot.Kinds() {
		read := slices.ContainsFunc(kinds, func(k kind) bool {
			return k.GroupVersionKind == watched.GroupVersionKind && k.kept == watched
		})
		if read != (watched.Readers != snapshot.Leader && !watched.Own) {
			t.Errorf("%s: is read is %v", watched.GroupVersionKind, read)
		}
	}
}
