package bundle

import (
	"regexp"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/verdict"
)

func listVersion(in verdict.EditInput) (what string, patch []verdict.PatchOperation) {
	return "add " + text.Quote(in.CSV) + " to spec.versions", []verdict.PatchOperation{add("/spec/versions/-", in.CSV)}
}

func widenRange(in verdict.EditInput) (what string, patch []verdict.PatchOperation) {
	written, _, _ := unstructured.NestedString(in.Policy, "spec", "versionRange") // another type ends in no edit
	if in.Version == "" || written == "" {
		return "", nil
	}
	wider := written + " || " + in.Version
	return "spec.versionRange: " + text.Quote(wider), set("versionRange", wider)
}

func nameCatalog(in verdict.EditInput) (what string, patch []verdict.PatchOperation) {
	c := in.Catalog
	if c == (olm.Catalog{}) {
		return "", nil
	}
	return "spec.subscription.source: " + text.Name(c.Name) + " and sourceNamespace: " + text.Name(c.Namespace),
		append(set("subscription/source", c.Name), set("subscription/sourceNamespace", c.Namespace)...)
}

func nameChannel(in verdict.EditInput) (what string, patch []verdict.PatchOperation) {
	if in.Channel == "" {
		return "", nil
	}
	return "spec.subscription.channel: " + text.Name(in.Channel), set("subscription/channel", in.Channel)
}

func approveUpgrades(verdict.EditInput) (what string, patch []verdict.PatchOperation) {
	return "spec.upgradeApproval: Automatic, which approves later upgrades as well", set("upgradeApproval", "Automatic")
}

func allowDeprecated(verdict.EditInput) (what string, patch []verdict.PatchOperation) {
	return "spec.deprecated: Allow", set("deprecated", "Allow")
}

// What messages ask to accept: the digest of a change, and that of an image that a catalog runs.
var (
	changeDigest = regexp.MustCompile(`(sha256:[0-9a-f]{64})`)
	imageDigest  = regexp.MustCompile(`(?:runs image|; add|or add) (sha256:[0-9a-f]{64})`)
)

func acceptChange(in verdict.EditInput) (what string, patch []verdict.PatchOperation) {
	return accept(in, changeDigest, "consent")
}

func acceptImage(in verdict.EditInput) (what string, patch []verdict.PatchOperation) {
	return accept(in, imageDigest, "catalog")
}

// accept adds the digest that a message names to the list accepted in a field of the spec.
func accept(in verdict.EditInput, named *regexp.Regexp, field string) (what string, patch []verdict.PatchOperation) {
	found := named.FindStringSubmatch(in.Message)
	if found == nil {
		return "", nil
	}
	digest, list := found[1], "spec."+field+".accepted"
	operation := add("/spec/"+field+"/accepted/-", digest)
	if accepted, _, _ := unstructured.NestedSlice(in.Policy, "spec", field, "accepted"); accepted == nil {
		operation = add("/spec/"+field+"/accepted", []any{digest})
	}
	return "add " + digest + " to " + list, []verdict.PatchOperation{operation}
}

func add(path string, value any) verdict.PatchOperation {
	return verdict.PatchOperation{Op: "add", Path: path, Value: value}
}

// set returns the patch that sets a field of the spec.
func set(path, value string) []verdict.PatchOperation {
	return []verdict.PatchOperation{add("/spec/"+path, value)}
}
