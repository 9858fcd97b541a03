package conversion

import (
	"maps"

	"github.com/opgate/opgate/rules/operatorpolicy"
)

// contradictions returns the fields of statusConfig that complianceConfig contradicts.
func contradictions(spec map[string]any) []string {
	earlier, _ := spec[fieldStatusConfig].(map[string]any)
	config, _ := spec[fieldComplianceConfig].(map[string]any)
	var fields []string
	for field, value := range earlier {
		if operatorpolicy.ContradictsStatusConfig(text(value), text(config[field])) {
			fields = append(fields, field)
		}
	}
	return fields
}

// overrule removes from a statusConfig that was carried what complianceConfig contradicts: only statusConfig that does
// not contradict is carried, so that complianceConfig was changed in v1beta1, which does not show the other.
func overrule(spec map[string]any) {
	fields := contradictions(spec)
	if len(fields) == 0 {
		return
	}
	earlier := maps.Clone(spec[fieldStatusConfig].(map[string]any))
	for _, field := range fields {
		delete(earlier, field)
	}
	spec[fieldStatusConfig] = earlier
	if len(earlier) == 0 {
		delete(spec, fieldStatusConfig)
	}
}
