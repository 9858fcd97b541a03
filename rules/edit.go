package rules

import (
	"regexp"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
)

// Edit proposes an edit of an OperatorPolicy that may end a refusal, as a sentence and as a JSON patch, which is empty
// if there is none. Whoever shows it judges again with it before.
type Edit func(EditInput) (what string, patch []PatchOperation)

// EditInput is what an Edit depends on.
type EditInput struct {
	// Policy is the OperatorPolicy as it is stored.
	Policy map[string]any
	// CSV is the refused ClusterServiceVersion of the plan, and Message that of the refusal.
	CSV     *Replacement
	Message string
}

func listVersion(in EditInput) (what string, patch []PatchOperation) {
	return "add " + text.Quote(in.CSV.CSV) + " to spec.versions", []PatchOperation{{"add", "/spec/versions/-", in.CSV.CSV}}
}

func widenRange(in EditInput) (what string, patch []PatchOperation) {
	written, _, _ := unstructured.NestedString(in.Policy, "spec", "versionRange") // another type ends in no edit
	if in.CSV.Version == "" || written == "" {
		return "", nil
	}
	wider := written + " || " + in.CSV.Version
	return "spec.versionRange: " + text.Quote(wider), set("versionRange", wider)
}

func nameCatalog(in EditInput) (what string, patch []PatchOperation) {
	c := in.CSV.Catalog
	if c == (olm.Catalog{}) {
		return "", nil
	}
	return "spec.subscription.source: " + text.Name(c.Name) + " and sourceNamespace: " + text.Name(c.Namespace),
		append(set("subscription/source", c.Name), set("subscription/sourceNamespace", c.Namespace)...)
}

func nameChannel(in EditInput) (what string, patch []PatchOperation) {
	if in.CSV.Channel == "" {
		return "", nil
	}
	return "spec.subscription.channel: " + text.Name(in.CSV.Channel), set("subscription/channel", in.CSV.Channel)
}

func approveUpgrades(EditInput) (what string, patch []PatchOperation) {
	return "spec.upgradeApproval: Automatic, which approves later upgrades as well", set("upgradeApproval", "Automatic")
}

func allowDeprecated(EditInput) (what string, patch []PatchOperation) {
	return "spec.deprecated: Allow", set("deprecated", "Allow")
}

// What messages ask to accept: the digest of a change, and that of an image that a catalog runs.
var (
	changeDigest = regexp.MustCompile(`(sha256:[0-9a-f]{64})`)
	imageDigest  = regexp.MustCompile(`(?:runs image|; add|or add) (sha256:[0-9a-f]{64})`)
)

func acceptChange(in EditInput) (what string, patch []PatchOperation) {
	return accept(in, changeDigest, "consent")
}

func acceptImage(in EditInput) (what string, patch []PatchOperation) {
	return accept(in, imageDigest, "catalog")
}

// accept adds the digest that a message names to the list accepted in a field of the spec.
func accept(in EditInput, named *regexp.Regexp, field string) (what string, patch []PatchOperation) {
	found := named.FindStringSubmatch(in.Message)
	if found == nil {
		return "", nil
	}
	digest, list := found[1], "spec."+field+".accepted"
	add := PatchOperation{"add", "/spec/" + field + "/accepted/-", digest}
	if accepted, _, _ := unstructured.NestedSlice(in.Policy, "spec", field, "accepted"); accepted == nil {
		add = PatchOperation{"add", "/spec/" + field + "/accepted", []any{digest}}
	}
	return "add " + digest + " to " + list, []PatchOperation{add}
}

// set returns the patch that sets a field of the spec.
func set(path, value string) []PatchOperation {
	return []PatchOperation{{"add", "/spec/" + path, value}}
}
