package bundle

import (
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
	return "spec.versionRange: " + text.Quote(wider), set("/spec/versionRange", wider)
}

func nameCatalog(in verdict.EditInput) (what string, patch []verdict.PatchOperation) {
	c := in.Catalog
	if c == (olm.Catalog{}) {
		return "", nil
	}
	return "spec.subscription.source: " + text.Name(c.Name) + " and sourceNamespace: " + text.Name(c.Namespace),
		append(set("/spec/subscription/source", c.Name), set("/spec/subscription/sourceNamespace", c.Namespace)...)
}

func nameChannel(in verdict.EditInput) (what string, patch []verdict.PatchOperation) {
	if in.Channel == "" {
		return "", nil
	}
	return "spec.subscription.channel: " + text.Name(in.Channel), set("/spec/subscription/channel", in.Channel)
}

func approveUpgrades(verdict.EditInput) (what string, patch []verdict.PatchOperation) {
	return "spec.upgradeApproval: Automatic, which approves later upgrades as well", set("/spec/upgradeApproval", "Automatic")
}

func allowDeprecated(verdict.EditInput) (what string, patch []verdict.PatchOperation) {
	return "spec.deprecated: Allow", set("/spec/deprecated", "Allow")
}

func acceptChange(in verdict.EditInput) (what string, patch []verdict.PatchOperation) {
	return accept(in, "consent")
}

func acceptImage(in verdict.EditInput) (what string, patch []verdict.PatchOperation) {
	return accept(in, "catalog")
}

// accept adds the digest of a refusal to the list accepted in a field of the spec.
func accept(in verdict.EditInput, field string) (what string, patch []verdict.PatchOperation) {
	if in.Digest == "" {
		return "", nil
	}
	operation := add("/spec/"+field+"/accepted/-", in.Digest)
	if accepted, _, _ := unstructured.NestedSlice(in.Policy, "spec", field, "accepted"); accepted == nil {
		operation = add("/spec/"+field+"/accepted", []any{in.Digest})
	}
	return "add " + in.Digest + " to spec." + field + ".accepted", []verdict.PatchOperation{operation}
}

func add(path string, value any) verdict.PatchOperation {
	return verdict.PatchOperation{Op: "add", Path: path, Value: value}
}

// set returns the patch that sets a field of the spec.
func set(path, value string) []verdict.PatchOperation {
	return []verdict.PatchOperation{add(path, value)}
}
