package state

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/rules/operatorpolicy"
)

// CompletedOperatorPolicy prepares a policy that was completed from cluster state, as NewOperatorPolicy does; written
// is the policy as it is stored. Problems, full sentences, are why it could not be completed in part; while there are
// any, what it governs is held.
//
// A value that a template produced may be anything that was looked up. So one that is not valid is not kept: the field
// is as it was written, and the error names the template in place of the value (threat O47).
func CompletedOperatorPolicy(
	written, completed *policyv1beta2.OperatorPolicy, problems, exceptable []string,
) *OperatorPolicy {
	unfit := withoutWritten(written, operatorpolicy.ValidateGate(written), operatorpolicy.ValidateGate(completed))
	rest := withoutWritten(written, operatorpolicy.ValidateRest(written), operatorpolicy.ValidateRest(completed))
	if len(unfit)+len(rest) > 0 {
		restored := *completed
		for _, err := range slices.Concat(unfit, rest) {
			restore(&restored.Spec, &written.Spec, err.Field)
		}
		completed = &restored
	}
	p := NewOperatorPolicy(completed, exceptable)
	p.Problems, p.Incomplete, p.completed = problems, false, true
	var faults []string
	for _, err := range unfit {
		faults = append(faults, err.Field+" is not valid")
	}
	if p.faults != "" {
		faults = append(faults, p.faults)
	}
	p.faults = strings.Join(append(faults, problems...), "; ")
	p.Invalid = slices.Concat(unfit, p.Invalid, rest)
	return p
}

// withoutWritten returns the errors of a completed policy that the policy as it is written has not: these depend on
// what was looked up, so they name the field alone.
func withoutWritten(written *policyv1beta2.OperatorPolicy, before, now field.ErrorList) field.ErrorList {
	known := map[string]bool{}
	for _, err := range before {
		known[err.Error()] = true
	}
	var unfit field.ErrorList
	for _, err := range now {
		path := fieldOf(err.Field)
		if known[err.Error()] || slices.ContainsFunc(unfit, func(e *field.Error) bool { return e.Field == path }) {
			continue
		}
		what := "the value of the template at " + path + " is not valid"
		if path == "spec.subscription.namespace" && written.Spec.Subscription.Namespace == "" {
			what = "the namespace that the package suggests is not valid"
		}
		unfit = append(unfit, &field.Error{Type: field.ErrorTypeInvalid, Field: path, BadValue: field.OmitValueType{},
			Detail: what})
	}
	return unfit
}

// fieldOf returns the field that a path leads to or below, of those that templates may be in: what follows may be of
// the value.
func fieldOf(path string) string {
	fields := []string{"spec.versionRange", "spec.versions", "spec.operatorGroup.name", "spec.operatorGroup.namespace",
		"spec.operatorGroup.serviceAccountName",
		"spec.operatorGroup.targetNamespaces", "spec.operatorGroup.target", "spec.operatorGroup.selector",
		"spec.operatorGroup",
		"spec.subscription.name", "spec.subscription.namespace", "spec.subscription.channel",
		"spec.subscription.source",
		"spec.subscription.sourceNamespace", "spec.subscription.startingCSV", "spec.subscription.config",
		"spec.subscription"}
	for _, f := range fields {
		if rest, ok := strings.CutPrefix(path, f); ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			return f
		}
	}
	return "spec"
}

// restore sets a field of fieldOf to its value in another spec.
func restore(spec, from *policyv1beta2.OperatorPolicySpec, path string) {
	sub, written := &spec.Subscription, &from.Subscription
	switch path {
	case "spec.versions":
		spec.Versions = from.Versions
	case "spec.versionRange":
		spec.VersionRange = from.VersionRange
	case "spec.subscription.name":
		sub.Name = written.Name
	case "spec.subscription.namespace":
		sub.Namespace = written.Namespace
	case "spec.subscription.channel":
		sub.Channel = written.Channel
	case "spec.subscription.source":
		sub.Source = written.Source
	case "spec.subscription.sourceNamespace":
		sub.SourceNamespace = written.SourceNamespace
	case "spec.subscription.startingCSV":
		sub.StartingCSV = written.StartingCSV
	case "spec.subscription.config":
		sub.Config = written.Config
	case "spec.subscription", "spec":
		*sub = *written
	}
	if path == "spec" || strings.HasPrefix(path, "spec.operatorGroup") {
		spec.OperatorGroup = from.OperatorGroup
	}
	if path == "spec" {
		spec.Versions, spec.VersionRange = from.Versions, from.VersionRange
	}
}
