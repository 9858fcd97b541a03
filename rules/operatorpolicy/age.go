package operatorpolicy

import (
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
)

// Bounds of spec.minimumAge, spec.maximumWait and spec.urgent.
const (
	minAge    = time.Second
	maxAge    = 365 * 24 * time.Hour
	maxUrgent = 64
)

// Age reads spec.minimumAge or spec.maximumWait; 0 if it is empty.
func Age(value string) (time.Duration, error) {
	if value == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(value)
	if err != nil || d < minAge || d > maxAge {
		return 0, errors.New("must be a duration from 1s to 8760h, such as 168h for a week")
	}
	return d, nil
}

// validateAge checks spec.minimumAge and spec.urgent.
func validateAge(spec *policyv1beta2.OperatorPolicySpec) (errs field.ErrorList) {
	if _, err := Age(spec.MinimumAge); err != nil {
		errs = append(errs, field.Invalid(specPath.Child("minimumAge"), spec.MinimumAge, err.Error()))
	}
	path := specPath.Child("urgent")
	switch names := SplitVersions(spec.Urgent); {
	case len(names) > maxUrgent:
		errs = append(errs, field.TooMany(path, len(names), maxUrgent))
	case len(spec.Urgent) > 0:
		errs = append(errs, ValidateVersions(path, spec.Urgent)...)
	}
	return errs
}
