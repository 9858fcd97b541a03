package operatorpolicy

import (
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/text"
)

// standard returns the default of a field of complianceConfig, by its name in Go.
func standard(name string) policyv1beta2.ComplianceConfigAction {
	if name == "DeploymentsUnavailable" {
		return policyv1beta2.ConfigNonCompliant
	}
	return policyv1beta2.ConfigCompliant
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

// earlierValue returns the statusConfig value of a field, by its name in Go; spec may be nil.
func earlierValue(spec *policyv1beta2.OperatorPolicySpec, name string) policyv1beta2.StatusConfigAction {
	if spec == nil || spec.StatusConfig == nil {
		return ""
	}
	field := reflect.ValueOf(spec.StatusConfig).Elem().FieldByName(name)
	if !field.IsValid() { // it is one that statusConfig never had
		return ""
	}
	return policyv1beta2.StatusConfigAction(field.String())
}

// FilledConfig returns complianceConfig with every field: from statusConfig if set, else with defaults. On update, a
// changed statusConfig value replaces the complianceConfig value that was derived from it. It is idempotent. Copied is
// set if a value of statusConfig was.
func FilledConfig(op, old *policyv1beta2.OperatorPolicy) (filled policyv1beta2.ComplianceConfig, copied bool) {
	var oldSpec *policyv1beta2.OperatorPolicySpec
	before := policyv1beta2.ComplianceConfig{}
	if old != nil {
		oldSpec, before = &old.Spec, old.Spec.ComplianceConfig
	}
	filled = op.Spec.ComplianceConfig
	fields := reflect.ValueOf(&filled).Elem()
	for i := range fields.NumField() {
		value, name := fields.Field(i), fields.Type().Field(i).Name
		earlier := earlierValue(&op.Spec, name)
		follows := old != nil && earlier != earlierValue(oldSpec, name) &&
			value.String() == reflect.ValueOf(before).Field(i).String()
		if value.String() != "" && !follows {
			continue
		}
		next := readEarlier(earlier)
		switch {
		case next != "" && string(next) != value.String():
			value.SetString(string(next))
			copied = true
		case value.String() == "":
			value.SetString(string(standard(name)))
		}
	}
	return filled, copied
}

// complianceConfigs checks that both fields do not contradict each other.
func (r *reader) complianceConfigs(spec *policyv1beta2.OperatorPolicySpec) {
	fields := reflect.ValueOf(spec.ComplianceConfig)
	for i := range fields.NumField() {
		name := fields.Type().Field(i).Name
		config, earlier := fields.Field(i).String(), earlierValue(spec, name)
		if ContradictsStatusConfig(string(earlier), config) {
			name = strings.ToLower(name[:1]) + name[1:]
			r.add(field.Forbidden(specPath.Child("statusConfig", name), fmt.Sprintf(
				"means %s, but %s is %s; remove one of the two", readEarlier(earlier),
				specPath.Child("complianceConfig", name), config)))
		}
	}
}

// Dialect is one of the two forms in which a v1beta1 policy specifies what happens to upgrades. A policy without one
// was written in v1beta2, or in v1beta1 with both forms, and has both in v1beta1.
type Dialect string

const (
	// DialectInstallPlanApproval has subscription.installPlanApproval.
	DialectInstallPlanApproval Dialect = "installPlanApproval"
	// DialectUpgradeApproval has upgradeApproval.
	DialectUpgradeApproval Dialect = "upgradeApproval"
)

// ParseDialect reads the annotation of a policy in v1beta2; "" means that there is none.
func ParseDialect(annotation string) (Dialect, error) {
	if annotation == "" {
		return "", nil
	}
	var content struct {
		Dialect Dialect `json:"dialect"`
	}
	strict, err := kjson.UnmarshalStrict([]byte(annotation), &content)
	if err == nil && len(strict) > 0 {
		err = strict[0]
	}
	if err != nil {
		return "", err
	}
	if content.Dialect != DialectInstallPlanApproval && content.Dialect != DialectUpgradeApproval {
		return "", fmt.Errorf("dialect %s is neither %q nor %q", text.Quote(string(content.Dialect)),
			DialectInstallPlanApproval, DialectUpgradeApproval)
	}
	return content.Dialect, nil
}
