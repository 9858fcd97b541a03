package operatorpolicy

import (
	"fmt"

	kjson "sigs.k8s.io/json"

	"github.com/opgate/opgate/internal/text"
)

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
