package verdict

import (
	"github.com/opgate/opgate/olm"
)

// Edit proposes an edit of an OperatorPolicy that may end a refusal, as a sentence and as a JSON patch, which is empty
// if there is none. Its caller judges with the edit before it shows it.
type Edit func(EditInput) (what string, patch []PatchOperation)

// EditInput is what an Edit depends on.
type EditInput struct {
	// Policy is the OperatorPolicy as it is stored.
	Policy map[string]any
	// CSV is the refused ClusterServiceVersion of the plan. Its version, channel and catalog are empty if not known.
	CSV, Version, Channel string
	Catalog               olm.Catalog
	// Message is that of the refusal.
	Message string
}
