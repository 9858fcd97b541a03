package operatorpolicy

import (
	"strconv"

	"k8s.io/apimachinery/pkg/util/validation/field"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/rules/verdict"
)

// DefaultMaxChanged is the default of spec.catalog.maxChangedPackages.
const DefaultMaxChanged = 50

// validateCatalog checks the action and the digests.
func validateCatalog(c *policyv1beta2.Catalog) field.ErrorList {
	if c == nil {
		return nil
	}
	path := specPath.Child("catalog")
	var errs field.ErrorList
	if c.Image != "" {
		errs = append(errs, verdict.OneOf(path.Child("image"), c.Image, policyv1beta2.CatalogHold,
			policyv1beta2.CatalogAllow)...)
	}
	if c.Jump != "" {
		errs = append(errs, verdict.OneOf(path.Child("jump"), c.Jump, policyv1beta2.CatalogHold,
			policyv1beta2.CatalogAllow)...)
	}
	if c.MaxChangedPackages < 0 {
		errs = append(errs, field.Invalid(path.Child("maxChangedPackages"), c.MaxChangedPackages,
			"must be 1 at least; left out it is "+strconv.Itoa(DefaultMaxChanged)))
	}
	return append(errs, validateDigests(path.Child("accepted"), c.Accepted)...)
}
