package evidence

import (
	"fmt"
	"strings"
	"time"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/operatorpolicy"
)

// OverrideReason returns the reason for an override that an object has; "" for none.
func OverrideReason(m *olm.ObjectMeta) string {
	return strings.TrimSpace(m.Annotations.OverrideReason)
}

// Overridden reports whether the approval of a plan was allowed by an override, which may have ended. The reason on an
// approved plan proves that, since rule plan/override-reason keeps every other write from adding one.
func Overridden(p *olm.InstallPlan) bool {
	return p.Spec.Approved && OverrideReason(&p.Metadata) != ""
}

// OverrideEnd returns that the override of a plan has ended at a time, to follow its noun; "" if the plan has none, or
// that is in force.
func OverrideEnd(p *olm.InstallPlan, now time.Time) string {
	if !Overridden(p) {
		return ""
	}
	return OverrideExpiry(&p.Metadata).EndedText(now)
}

// maxConsent bounds the annotation, in bytes: MaxDigests with a comma and a few blanks each.
const maxConsent = operatorpolicy.MaxDigests * 80

// Consented returns the digests in the annotation of a plan, or what is wrong with it. Such an annotation consents to
// nothing.
func Consented(m *olm.ObjectMeta) (digests map[string]bool, problem string) {
	value := m.Annotations.Consent
	if len(value) > maxConsent {
		return nil, fmt.Sprintf("it has %d bytes, at most %d are read", len(value), maxConsent)
	}
	if strings.TrimSpace(value) == "" {
		return nil, ""
	}
	digests = map[string]bool{}
	for part := range strings.SplitSeq(value, ",") {
		digest := strings.TrimSpace(part)
		if problem := operatorpolicy.NotDigest(digest); problem != "" {
			return nil, text.Quote(digest) + " " + problem
		}
		digests[digest] = true
	}
	if len(digests) > operatorpolicy.MaxDigests {
		return nil, fmt.Sprintf("it has %d digests, at most %d are read", len(digests), operatorpolicy.MaxDigests)
	}
	return digests, ""
}
