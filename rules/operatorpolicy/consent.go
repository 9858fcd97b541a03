package operatorpolicy

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/change"
	"github.com/opgate/opgate/rules/verdict"
)

// MaxDigests bounds the digests of a policy, as the schema does, and of the annotation of a plan.
const MaxDigests = 64

// ConsentClasses returns the actions of spec.consent by class; a class is the name of its field.
func ConsentClasses(c *policyv1beta2.Consent) map[change.Class]policyv1beta2.ConsentAction {
	return map[change.Class]policyv1beta2.ConsentAction{
		change.Permissions: c.Permissions, change.Webhooks: c.Webhooks, change.BreakingCRDs: c.BreakingCRDs,
		change.PodSecurity: c.PodSecurity, change.Images: c.Images, change.Scope: c.Scope,
	}
}

// validateConsent checks the actions and the digests.
func validateConsent(c *policyv1beta2.Consent) field.ErrorList {
	if c == nil {
		return nil
	}
	path := specPath.Child("consent")
	actions := ConsentClasses(c)
	actions["firstInstall"] = c.FirstInstall
	var errs field.ErrorList
	for _, name := range append(slices.Clone(change.Reviewable), "firstInstall") {
		if action := actions[name]; action != "" {
			errs = append(errs, verdict.OneOf(path.Child(string(name)), action, policyv1beta2.ConsentHold,
				policyv1beta2.ConsentWarn, policyv1beta2.ConsentIgnore)...)
		}
	}
	return append(errs, validateDigests(path.Child("accepted"), c.Accepted)...)
}

func validateDigests(path *field.Path, digests []string) field.ErrorList {
	if len(digests) > MaxDigests {
		return field.ErrorList{field.TooMany(path, len(digests), MaxDigests)}
	}
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, digest := range digests {
		switch problem := NotDigest(digest); {
		case problem != "":
			errs = append(errs, field.Invalid(path.Index(i), text.Truncate(digest, maxShownDigest), problem))
		case seen[digest]:
			errs = append(errs, field.Duplicate(path.Index(i), digest))
		}
		seen[digest] = true
	}
	return errs
}

// maxShownDigest bounds what an error shows of a text that is no digest, in bytes.
const maxShownDigest = 120

// NotDigest returns why a text is not the digest of a change, or "".
func NotDigest(s string) string {
	const accepted = "write it as the refusal does: sha256: and 64 hexadecimal digits in lower case"
	if problem := notASCII(s); problem != "" {
		return problem
	}
	algorithm, digits, found := strings.Cut(s, ":")
	switch {
	case s != strings.TrimSpace(s):
		return "must not start or end with white space"
	case found && algorithm != "sha256":
		return "is of another algorithm than sha256; " + accepted
	case !found || len(digits) != 64:
		return "is not a digest; " + accepted
	case strings.Trim(digits, "0123456789abcdef") != "":
		return "has other characters than hexadecimal digits in lower case; " + accepted
	}
	return ""
}
