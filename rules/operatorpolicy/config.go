package operatorpolicy

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
)

// configField maps one field of complianceConfig to its earlier spelling in statusConfig and to its default.
type configField struct {
	name     string
	config   func(*policyv1beta2.ComplianceConfig) *policyv1beta2.ComplianceConfigAction
	earlier  func(*policyv1beta2.StatusConfig) policyv1beta2.StatusConfigAction // nil where there was none
	standard policyv1beta2.ComplianceConfigAction
}

// configFields lists them with their defaults.
var configFields = []configField{
	{"catalogSourceUnhealthy",
		func(c *policyv1beta2.ComplianceConfig) *policyv1beta2.ComplianceConfigAction {
			return &c.CatalogSourceUnhealthy
		},
		func(s *policyv1beta2.StatusConfig) policyv1beta2.StatusConfigAction { return s.CatalogSourceUnhealthy },
		policyv1beta2.ConfigCompliant},
	{"deploymentsUnavailable",
		func(c *policyv1beta2.ComplianceConfig) *policyv1beta2.ComplianceConfigAction {
			return &c.DeploymentsUnavailable
		},
		func(s *policyv1beta2.StatusConfig) policyv1beta2.StatusConfigAction { return s.DeploymentsUnavailable },
		policyv1beta2.ConfigNonCompliant},
	{"upgradesAvailable",
		func(c *policyv1beta2.ComplianceConfig) *policyv1beta2.ComplianceConfigAction {
			return &c.UpgradesAvailable
		},
		func(s *policyv1beta2.StatusConfig) policyv1beta2.StatusConfigAction { return s.UpgradesAvailable },
		policyv1beta2.ConfigCompliant},
	{"upgradesProgressing",
		func(c *policyv1beta2.ComplianceConfig) *policyv1beta2.ComplianceConfigAction {
			return &c.UpgradesProgressing
		},
		func(s *policyv1beta2.StatusConfig) policyv1beta2.StatusConfigAction { return s.UpgradesProgressing },
		policyv1beta2.ConfigCompliant},
	{"deprecationsPresent",
		func(c *policyv1beta2.ComplianceConfig) *policyv1beta2.ComplianceConfigAction {
			return &c.DeprecationsPresent
		},
		nil, policyv1beta2.ConfigCompliant},
	{"minorChannelUpgradeAvailable",
		func(c *policyv1beta2.ComplianceConfig) *policyv1beta2.ComplianceConfigAction {
			return &c.MinorChannelUpgradeAvailable
		},
		nil, policyv1beta2.ConfigCompliant},
}

// readEarlier returns the present meaning of a statusConfig value, or "" if it is not set or not known. Open
// Cluster Management's proposal "Improved Support for Managing Operators through Policy", which designed statusConfig,
// has Condition (shown as a condition only) and StatusMessageOnly: neither changes compliance.
func readEarlier(v policyv1beta2.StatusConfigAction) policyv1beta2.ComplianceConfigAction {
	switch v {
	case policyv1beta2.StatusConfigStatusMessageOnly, policyv1beta2.StatusConfigCondition,
		policyv1beta2.StatusConfigCompliant:
		return policyv1beta2.ConfigCompliant
	case policyv1beta2.StatusConfigNonCompliant:
		return policyv1beta2.ConfigNonCompliant
	}
	return ""
}

// ContradictsStatusConfig reports whether a value of complianceConfig contradicts one of the same field in
// statusConfig. What is not set or not known contradicts nothing.
func ContradictsStatusConfig(earlier, config string) bool {
	meant := readEarlier(policyv1beta2.StatusConfigAction(earlier))
	return meant != "" && config != "" && string(meant) != config
}

// earlierValue returns the statusConfig value of a field in a spec; spec may be nil.
func (f *configField) earlierValue(spec *policyv1beta2.OperatorPolicySpec) policyv1beta2.StatusConfigAction {
	if f.earlier == nil || spec == nil || spec.StatusConfig == nil {
		return ""
	}
	return f.earlier(spec.StatusConfig)
}

// FilledConfig returns complianceConfig with every field: from statusConfig if set, else with defaults. On update, a
// changed statusConfig value replaces the complianceConfig value that was derived from it. It is idempotent. Copied is
// set if a value of statusConfig was.
func FilledConfig(op, old *policyv1beta2.OperatorPolicy) (filled policyv1beta2.ComplianceConfig, copied bool) {
	var oldSpec *policyv1beta2.OperatorPolicySpec
	if old != nil {
		oldSpec = &old.Spec
	}
	filled = op.Spec.ComplianceConfig
	for i := range configFields {
		f := &configFields[i]
		value, earlier := f.config(&filled), f.earlierValue(&op.Spec)
		follows := oldSpec != nil && earlier != f.earlierValue(oldSpec) &&
			*value == *f.config(&oldSpec.ComplianceConfig)
		if *value != "" && !follows {
			continue
		}
		next := readEarlier(earlier)
		switch {
		case next != "" && next != *value:
			*value, copied = next, true
		case *value == "":
			*value = f.standard
		}
	}
	return filled, copied
}

// complianceConfigs checks that both fields do not contradict each other.
func (r *reader) complianceConfigs(spec *policyv1beta2.OperatorPolicySpec) {
	for i := range configFields {
		f := &configFields[i]
		config, earlier := *f.config(&spec.ComplianceConfig), f.earlierValue(spec)
		if ContradictsStatusConfig(string(earlier), string(config)) {
			r.add(field.Forbidden(specPath.Child("statusConfig", f.name), fmt.Sprintf(
				"means %s, but %s is %s; remove one of the two", readEarlier(earlier),
				specPath.Child("complianceConfig", f.name), config)))
		}
	}
}
