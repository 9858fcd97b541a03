package rules

import (
	"fmt"

	kjson "sigs.k8s.io/json"

	"github.com/opgate/opgate/internal/text"
)

// Dialect is one of the two forms of v1beta1 in which a policy says what becomes of upgrades. A policy
// without one was written in v1beta2, or in v1beta1 with both forms, and shows both there.
type Dialect string

const (
	// DialectInstallPlanApproval has subscription.installPlanApproval (R-CV-1).
	DialectInstallPlanApproval Dialect = "installPlanApproval"
	// DialectUpgradeApproval has upgradeApproval (R-CV-2).
	DialectUpgradeApproval Dialect = "upgradeApproval"
)

// ConversionAnnotation carries what the version that an object is shown in cannot say. In v1beta2, as which
// policies are stored and judged, that is the dialect: {"dialect":"installPlanApproval"}.
const ConversionAnnotation = "opgate.io/conversion"

// ParseDialect reads the annotation of a policy in v1beta2; "" is one without.
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
		return "", fmt.Errorf("dialect %s is neither %q nor %q", text.Quote(string(content.Dialect)), DialectInstallPlanApproval, DialectUpgradeApproval)
	}
	return content.Dialect, nil
}
