package operatorpolicy

import (
	"bytes"
	"encoding/json"
	"strings"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
)

// isTemplate reports whether a string contains template text, which the policy framework resolves on the cluster.
func isTemplate(s string) bool { return strings.Contains(s, "{{") }

// UnlessTemplate returns a string that contains no template text, else "".
func UnlessTemplate(s string) string {
	if isTemplate(s) {
		return ""
	}
	return s
}

// Templates returns the parts of the spec in which template text is resolved.
func Templates(spec *policyv1beta2.OperatorPolicySpec) []any {
	return []any{spec.Versions, spec.VersionRange, spec.Subscription, spec.OperatorGroup}
}

// TemplatesEnabled reports whether the policy framework resolves template text in this policy.
func TemplatesEnabled(op *policyv1beta2.OperatorPolicy) bool {
	switch op.Annotations["policy.open-cluster-management.io/disable-templates"] {
	case "1", "t", "T", "true", "TRUE", "True": // what strconv.ParseBool accepts as true
		return false
	}
	return true
}

// DependsOnCluster reports whether the meaning of a policy depends on cluster state: it has template text to resolve,
// or does not set its namespace.
func DependsOnCluster(op *policyv1beta2.OperatorPolicy) bool {
	spec := &op.Spec
	if spec.Subscription.Namespace == "" {
		return true
	}
	return TemplatesEnabled(op) && HasTemplate(Templates(spec))
}

// HasTemplate reports whether the JSON of a value contains template text.
func HasTemplate(value any) bool {
	raw, err := json.Marshal(value)
	if err != nil {
		return false // invalid JSON, which the API server never stores, has no template text
	}
	var decoded any
	if json.Unmarshal(raw, &decoded) != nil {
		return false
	}
	raw, err = json.Marshal(decoded) // again, since braces may have been escaped
	return err == nil && bytes.Contains(raw, []byte("{{"))
}

// TemplatedFields returns the fields with template text that judging would have to read.
func TemplatedFields(op *policyv1beta2.OperatorPolicy) []string {
	if !TemplatesEnabled(op) {
		return nil
	}
	sub := &op.Spec.Subscription
	var fields []string
	for _, f := range []struct{ path, value string }{
		{"spec.subscription.channel", sub.Channel},
		{"spec.subscription.source", sub.Source},
		{"spec.subscription.sourceNamespace", sub.SourceNamespace},
		{"spec.subscription.startingCSV", sub.StartingCSV},
		{"spec.versions", strings.Join(op.Spec.Versions, "")},
		{"spec.versionRange", op.Spec.VersionRange},
	} {
		if isTemplate(f.value) {
			fields = append(fields, f.path)
		}
	}
	return fields
}
