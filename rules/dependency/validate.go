package dependency

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	policyv1 "github.com/opgate/opgate/api/policy/v1"
	"github.com/opgate/opgate/rules/verdict"
)

// ValidatePolicy checks what the CRD schema of a Policy cannot express and, for `opgate check`, which has no API
// server, what the schema checks too.
func ValidatePolicy(policy *policyv1.Policy) field.ErrorList {
	var errs field.ErrorList
	spec := field.NewPath("spec")
	if n := len(policy.Name); n > MaxPolicyName {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), policy.Name, fmt.Sprintf(
			"has %d characters; the name becomes a label of what the templates make: write at most %d", n,
			MaxPolicyName)))
	}
	if action := policy.Spec.RemediationAction; action != "" {
		errs = append(errs, verdict.OneOf(spec.Child("remediationAction"), action,
			policyv1.Enforce, policyv1.EnforceCapital, policyv1.Inform, policyv1.InformCapital)...)
	}
	errs = append(errs, validateDependencies(spec.Child("dependencies"), policy.Spec.Dependencies)...)
	for i, template := range policy.Spec.PolicyTemplates {
		if template != nil {
			errs = append(errs, validateDependencies(spec.Child("policy-templates").Index(i).Child("extraDependencies"),
				template.ExtraDependencies)...)
		}
	}
	return errs
}

func validateDependencies(path *field.Path, list []policyv1.PolicyDependency) field.ErrorList {
	var errs field.ErrorList
	for i := range list {
		if len(errs) >= verdict.MaxFaults {
			break
		}
		d, at := &list[i], path.Index(i)
		errs = append(errs, validateAPIVersion(at.Child("apiVersion"), d.APIVersion)...)
		if d.Kind == "" {
			errs = append(errs, field.Required(at.Child("kind"), "name the kind that is waited for"))
		}
		if d.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), "name the object that is waited for"))
		}
		errs = append(errs, verdict.OneOf(at.Child("compliance"), d.Compliance, policyv1.Compliant,
			policyv1.NonCompliant,
			policyv1.Pending)...)
	}
	return errs
}

// validateAPIVersion refuses in particular a group without a version: it would be read as a version, and the Policy
// would wait forever.
func validateAPIVersion(path *field.Path, apiVersion string) field.ErrorList {
	if apiVersion == "" {
		return nil
	}
	group, version, grouped := strings.Cut(apiVersion, "/")
	if !grouped {
		group, version = "", apiVersion
	}
	if len(validation.IsDNS1035Label(version)) > 0 || grouped && len(validation.IsDNS1123Subdomain(group)) > 0 {
		return field.ErrorList{field.Invalid(path, apiVersion,
			`is no API version: write "<group>/<version>", for example "`+
				policyv1.GroupVersion.String()+`", or leave it out for that group`)}
	}
	return nil
}
