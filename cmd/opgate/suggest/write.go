package suggest

import (
	"fmt"
	"io"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/snapshot"
)

// Write edits the policies in files so that a plan may pass, and prints what it edits. It accepts no changes. What
// cannot be edited is an error; all else is written.
func Write(
	names []string, state *snapshot.Snapshot, plan types.NamespacedName, now time.Time, stderr io.Writer,
) error {
	steps := waiting(state, func(key types.NamespacedName) bool { return key == plan }, now)
	found, err := read(names, steps, state, false)
	if err != nil {
		return self.Unusable("%s", text.Escape(err.Error()))
	}
	if err := found.output(true, nil); err != nil {
		return self.Unusable("%v", err)
	}
	for _, s := range found.suggestions {
		fmt.Fprintln(stderr, "written: "+s.String())
	}
	switch {
	case len(found.faults) > 0:
		return self.Unusable("%s", strings.Join(found.faults, "; "))
	case len(found.suggestions) == 0:
		fmt.Fprintln(stderr, "nothing to write: no policy in the files holds a version of the plan")
	}
	return nil
}
