package compliance

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/stream"
)

// difference is a field of a live object that does not have the value that the policy sets.
type difference struct {
	path       []string
	live, want any
}

func (d *difference) String() string {
	switch d.path[len(d.path)-1] {
	case metakey.Managed:
		return "it is not marked as managed by this policy" // the name of another policy is not disclosed
	case metakey.CreatedBy:
		return "its annotation " + metakey.CreatedBy + " does not have the fields that the policy sets"
	}
	return fmt.Sprintf("%s is %s, want %s", strings.Join(d.path, "."), valueText(d.live), valueText(d.want))
}

// differing joins the differences for a message.
func differing(differences []difference) string {
	parts := make([]string, len(differences))
	for i := range differences {
		parts[i] = differences[i].String()
	}
	return sentences(slices.Compact(parts))
}

// differences compares the fields below a path of a live object that the policy sets, and ignores
// all others. A field is compared as a whole: items that the policy no longer lists in it are removed.
func differences(live, want map[string]any, path ...string) []difference {
	fields := object(live, path...)
	var differing []difference
	for _, field := range slices.Sorted(maps.Keys(want)) {
		if !operatorpolicy.Same(field, fields[field], want[field]) {
			differing = append(differing, difference{path: append(slices.Clone(path), field), live: fields[field],
				want: want[field]})
		}
	}
	return differing
}

// stringsIn returns the strings in a list of an object's content.
func stringsIn(value any) []string {
	var texts []string
	list, _ := value.([]any)
	for _, item := range list {
		if text, ok := item.(string); ok {
			texts = append(texts, text)
		}
	}
	return texts
}

// object returns the part of an object's content at a path, nil if it does not exist.
func object(content map[string]any, path ...string) map[string]any {
	for _, key := range path {
		content, _ = content[key].(map[string]any)
	}
	return content
}

// with returns a copy of a live object with one field set.
func with(live map[string]any, value any, field string, below ...string) map[string]any {
	changed := maps.Clone(live)
	if changed == nil {
		changed = map[string]any{}
	}
	if len(below) > 0 {
		value = with(object(live, field), value, below[0], below[1:]...)
	}
	changed[field] = value
	return changed
}

// subscriptionContent returns a Subscription in the form of unstructured objects, as far as it is compared and changed.
// A config that cannot be read is a placeholder, of which the whole is replaced.
func subscriptionContent(s *olm.Subscription) map[string]any {
	annotations, labels, spec := map[string]any{}, map[string]any{}, map[string]any{}
	put(annotations, metakey.Managed, s.Metadata.Annotations.ManagedBy)
	put(annotations, metakey.RequestedApproval, s.Metadata.Annotations.RequestedApproval)
	if fields := s.Metadata.Annotations.PolicyFields; fields != nil {
		annotations[metakey.PolicyFields] = *fields
	}
	if mark := s.Metadata.Labels.Managed; mark != nil {
		labels[metakey.Managed] = *mark
	}
	put(spec, "name", s.Spec.Package)
	put(spec, "channel", s.Spec.Channel)
	put(spec, "source", s.Spec.Source)
	put(spec, "sourceNamespace", s.Spec.SourceNamespace)
	put(spec, "startingCSV", s.Spec.StartingCSV)
	put(spec, "installPlanApproval", s.Spec.InstallPlanApproval)
	switch config := s.Spec.Config.Read(); {
	case config.Fault != "":
		spec["config"] = stream.Withhold(config.Fault)
	case config.JSON != "":
		var fields map[string]any
		_ = json.Unmarshal([]byte(config.JSON), &fields) // it was encoded when it was read
		spec["config"] = fields
	}
	content := s.Metadata.Reference(olm.SubscriptionGVK)
	metadata := object(content, "metadata")
	metadata["annotations"], metadata["labels"], content["spec"] = annotations, labels, spec
	return content
}

// groupContent returns an OperatorGroup in the form of unstructured objects, as far as it is compared and changed.
func groupContent(g *olm.OperatorGroup) map[string]any {
	spec := g.Spec.Fields()
	if spec == nil && g.Spec.Digest != [sha256.Size]byte{} {
		large := stream.Withhold("the spec of the OperatorGroup")
		spec = map[string]any{operatorpolicy.GroupTargets: large, operatorpolicy.GroupSelector: large}
		put(spec, operatorpolicy.GroupAccount, g.Spec.ServiceAccount)
		put(spec, "upgradeStrategy", g.Spec.UpgradeStrategy)
	}
	content := g.Metadata.Reference(olm.OperatorGroupGVK)
	if mark := g.Metadata.Annotations.CreatedBy; mark != "" {
		object(content, "metadata")["annotations"] = map[string]any{metakey.CreatedBy: mark}
	}
	content["spec"], content["status"] = spec, map[string]any{"namespaces": anySlice(g.Status.Namespaces)}
	return content
}

// corrected returns a copy of a live object with every difference corrected.
func corrected(live map[string]any, differences []difference) map[string]any {
	for i := range differences {
		live = with(live, differences[i].want, differences[i].path[0], differences[i].path[1:]...)
	}
	return live
}
