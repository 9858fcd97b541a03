package dependency

import (
	"fmt"
	"slices"
	"strings"

	"github.com/opgate/opgate/internal/text"
)

// shownPending bounds the dependencies that a message names.
const shownPending = 5

// PendingText returns the message for a waiting template: "Dependencies were not satisfied: 1 is still pending (Policy shop/db: WrongState,
// it is NonCompliant and Compliant is wanted)". It ends with the cycle, if there is one. Met findings are left out.
func PendingText(findings []Finding, cycle []Ref, ignored bool) string {
	waits := unmet(findings)
	slices.SortStableFunc(waits, func(a, b Finding) int { return a.Compare(b.Ref) })
	names := make([]string, len(waits))
	for i := range waits {
		names[i] = waits[i].String() + ": " + waits[i].says()
	}
	verb := "are"
	if len(waits) == 1 {
		verb = "is"
	}
	s := fmt.Sprintf("Dependencies were not satisfied: %d %s still pending (%s)", len(waits), verb, text.Join(names, shownPending))
	if len(cycle) > 0 {
		s += "; they wait for one another: " + ChainText(cycle)
	}
	if ignored {
		s += " but ignorePending is true"
	}
	return s
}

// says returns the reason and its explanation.
func (f *Finding) says() string {
	if f.Reason == NotFound {
		return string(f.Reason)
	}
	return strings.TrimSuffix(string(f.Reason)+", "+f.Text, ", ")
}
