package operatorpolicy

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/metakey"
)

// Templated is a part of the spec in which template text is resolved, as a whole.
type Templated struct {
	Path string
	// Field returns a pointer to it.
	Field func(*policyv1beta2.OperatorPolicySpec) any
}

// TemplatedParts are all of them.
var TemplatedParts = []Templated{
	{"spec.versions", func(s *policyv1beta2.OperatorPolicySpec) any { return &s.Versions }},
	{"spec.versionRange", func(s *policyv1beta2.OperatorPolicySpec) any { return &s.VersionRange }},
	{"spec.subscription", func(s *policyv1beta2.OperatorPolicySpec) any { return &s.Subscription }},
	{"spec.operatorGroup", func(s *policyv1beta2.OperatorPolicySpec) any { return &s.OperatorGroup }},
}

// Templates returns the parts of a spec in which template text is resolved.
func Templates(spec *policyv1beta2.OperatorPolicySpec) []any {
	parts := make([]any, len(TemplatedParts))
	for i, part := range TemplatedParts {
		parts[i] = part.Field(spec)
	}
	return parts
}

// isTemplate reports whether a string contains template text, which the policy framework resolves on the cluster.
func isTemplate(s string) bool { return strings.Contains(s, "{{") }

// unlessTemplate returns a string that contains no template text, else "".
func unlessTemplate(s string) string {
	if isTemplate(s) {
		return ""
	}
	return s
}

// TemplatesEnabled reports whether the policy framework resolves template text in this policy.
func TemplatesEnabled(op *policyv1beta2.OperatorPolicy) bool {
	switch op.Annotations[metakey.DisableTemplates] {
	case "1", "t", "T", "true", "TRUE", "True": // what strconv.ParseBool accepts as true
		return false
	}
	return true
}

// DependsOnCluster reports whether the meaning of a policy depends on cluster state: it has template text to resolve,
// or does not set its namespace.
func DependsOnCluster(op *policyv1beta2.OperatorPolicy) bool {
	return dependsOnCluster(&op.Spec, TemplatesEnabled(op))
}

func dependsOnCluster(spec *policyv1beta2.OperatorPolicySpec, templates bool) bool {
	return spec.Subscription.Namespace == "" || templates && hasTemplate(Templates(spec))
}

// hasTemplate reports whether the JSON of a value contains template text.
func hasTemplate(value any) bool {
	raw, err := json.Marshal(value)
	if err != nil {
		return false // invalid JSON, which the API server never stores, has no template text
	}
	if bytes.Contains(raw, []byte(`\u007`)) { // braces may be escaped
		var decoded any
		if json.Unmarshal(raw, &decoded) != nil {
			return false
		}
		raw, err = json.Marshal(decoded)
	}
	return err == nil && bytes.Contains(raw, []byte("{{"))
}

// Completed returns a policy once it was completed from cluster state; exceptable are as for Parse. Problems, full
// sentences, are why it could not be completed in part; while there are any, what it governs is held.
//
// A value that a template produced may be anything that was looked up. So one that is not valid is not kept: the field
// is as it was written, and the error names the template in place of the value.
func (p *Policy) Completed(completed *policyv1beta2.OperatorPolicy, problems, exceptable []string) *Policy {
	// Once every template is resolved, what looks like one is text.
	next := parse(completed, exceptable, len(problems) > 0 && TemplatesEnabled(completed))
	unfit := p.unfit(next.Invalid)
	if len(unfit) > 0 {
		restored := *completed
		for _, err := range unfit {
			restore(&restored.Spec, &p.Object.Spec, err.Field)
		}
		next = Parse(&restored, exceptable)
	}
	var faults []string
	for _, err := range unfit {
		if holds(err.Field) {
			faults = append(faults, err.Field+" is not valid")
		}
	}
	if next.faults != "" {
		faults = append(faults, next.faults)
	}
	next.faults, next.Invalid = strings.Join(faults, "; "), append(unfit, next.Invalid...)
	next.MarkCompleted(problems)
	return next
}

// unfit returns the errors of the completed policy that the policy as it is written has not: these depend on what was
// looked up, so they name the field alone.
func (p *Policy) unfit(errs field.ErrorList) (unfit field.ErrorList) {
	has := func(in field.ErrorList, err *field.Error) bool {
		return slices.ContainsFunc(in, func(e *field.Error) bool { return e.Error() == err.Error() })
	}
	for _, err := range errs {
		path := templatedField(err.Field)
		what := "the value of the template at " + path + " is not valid"
		if path == "spec.subscription.namespace" && p.Object.Spec.Subscription.Namespace == "" {
			what = "the namespace that the package suggests is not valid"
		}
		clean := &field.Error{Type: field.ErrorTypeInvalid, Field: path, BadValue: field.OmitValueType{}, Detail: what}
		if !has(p.Invalid, err) && !has(unfit, clean) {
			unfit = append(unfit, clean)
		}
	}
	return unfit
}

// templatedField returns the field of a templated part that a path leads to or below: what follows may be of the value.
func templatedField(path string) string {
	for _, part := range TemplatedParts {
		rest, ok := strings.CutPrefix(path, part.Path)
		switch {
		case !ok || rest != "" && rest[0] != '.' && rest[0] != '[':
		case rest == "" || rest[0] == '[':
			return part.Path
		default:
			end := strings.IndexAny(rest[1:], ".[")
			if end < 0 {
				return path
			}
			return path[:len(part.Path)+1+end]
		}
	}
	return "spec"
}

// restore sets a field of a templated part, as templatedField names it, to its value in another spec: of an
// OperatorGroup all fields, and all parts for any other field.
func restore(spec, from *policyv1beta2.OperatorPolicySpec, path string) {
	for _, part := range TemplatedParts {
		to, written := reflect.ValueOf(part.Field(spec)).Elem(), reflect.ValueOf(part.Field(from)).Elem()
		name, ok := strings.CutPrefix(path, part.Path+".")
		if ok && to.Kind() == reflect.Struct {
			of := func(f reflect.StructField) bool {
				tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				return tag == name
			}
			i := slices.IndexFunc(reflect.VisibleFields(to.Type()), of)
			if i >= 0 {
				to, written = to.Field(i), written.Field(i)
			}
		}
		if ok || path == part.Path || path == "spec" {
			to.Set(written)
		}
	}
}
