package operatorpolicy

import (
	"cmp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/change"
	"github.com/opgate/opgate/rules/verdict"
)

// MaxDigests bounds the digests of the annotation of a plan, as the schema does those of a policy.
const MaxDigests = 64

// Consent is spec.consent of a policy, prepared for judging. Nil holds and warns of nothing.
type Consent struct {
	actions      map[change.Class]policyv1beta2.ConsentAction
	firstInstall policyv1beta2.ConsentAction
	Accepted     map[string]struct{}
}

// consent reads spec.consent, with its defaults: Warn for a class, Ignore for a first installation.
func (r *reader) consent(spec *policyv1beta2.Consent) *Consent {
	if spec == nil {
		return nil
	}
	r.digests(specPath.Child("consent", "accepted"), spec.Accepted)
	c := &Consent{
		actions: map[change.Class]policyv1beta2.ConsentAction{
			change.Permissions: spec.Permissions, change.Webhooks: spec.Webhooks,
			change.BreakingCRDs: spec.BreakingCRDs, change.PodSecurity: spec.PodSecurity, change.Images: spec.Images,
			change.Scope: spec.Scope,
		},
		firstInstall: cmp.Or(spec.FirstInstall, policyv1beta2.ConsentIgnore),
		Accepted:     make(map[string]struct{}, len(spec.Accepted)),
	}
	for class, action := range c.actions {
		c.actions[class] = cmp.Or(action, policyv1beta2.ConsentWarn)
	}
	for _, digest := range spec.Accepted {
		c.Accepted[digest] = struct{}{}
	}
	return c
}

// Classes returns the classes with an action, for a first installation or for an upgrade. Classes that are ignored are
// ignored in both.
func (c *Consent) Classes(action policyv1beta2.ConsentAction, first bool) []change.Class {
	if c == nil {
		return nil
	}
	var found []change.Class
	for _, class := range change.Reviewable {
		set := c.actions[class]
		if first && set != policyv1beta2.ConsentIgnore {
			set = c.firstInstall
		}
		if set == action {
			found = append(found, class)
		}
	}
	return found
}

// Holds reports whether any change is held.
func (c *Consent) Holds() bool {
	return len(c.Classes(policyv1beta2.ConsentHold, false))+len(c.Classes(policyv1beta2.ConsentHold, true)) > 0
}

// Reviews reports whether changes are compared at all, for a first installation or for an upgrade.
func (c *Consent) Reviews(first bool) bool {
	return len(c.Classes(policyv1beta2.ConsentHold, first))+len(c.Classes(policyv1beta2.ConsentWarn, first)) > 0
}

// ReviewsChanges reports whether a policy may hold or warn of changes.
func (p *Policy) ReviewsChanges() bool {
	return !p.MustNotHave && p.Unreadable() == "" && (p.Consent.Reviews(false) || p.Consent.Reviews(true))
}

// digests checks a list of digests.
func (r *reader) digests(path *field.Path, digests []string) {
	seen := map[string]bool{}
	for i, digest := range digests {
		if !r.admits(path.String()) {
			break
		}
		switch problem := NotDigest(digest); {
		case problem != "":
			r.invalid(path.Index(i), text.Truncate(digest, maxShownDigest), problem)
		case seen[digest]:
			r.add(field.Duplicate(path.Index(i), digest))
		}
		seen[digest] = true
	}
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

// defaultMaxChanged is the default of spec.catalog.maxChangedPackages.
const defaultMaxChanged = 50

// CatalogImages is spec.catalog of a policy, prepared for judging. Nil holds nothing.
type CatalogImages struct {
	// HoldImage holds what comes from an image that is not accepted, HoldJump what comes after a jump.
	HoldImage, HoldJump bool
	// MaxChanged is the number of packages that an image may change without being a jump.
	MaxChanged int
	// Accepted are the digests in the order of the policy.
	Accepted []string
}

// catalog reads spec.catalog.
func (r *reader) catalog(spec *policyv1beta2.Catalog) *CatalogImages {
	if spec == nil {
		return nil
	}
	r.digests(specPath.Child("catalog", "accepted"), spec.Accepted)
	return &CatalogImages{HoldImage: spec.Image == policyv1beta2.CatalogHold,
		HoldJump:   spec.Jump == policyv1beta2.CatalogHold,
		MaxChanged: cmp.Or(int(spec.MaxChangedPackages), defaultMaxChanged), Accepted: spec.Accepted}
}

// Holds reports whether any plan may be held.
func (c *CatalogImages) Holds() bool { return c != nil && (c.HoldImage || c.HoldJump) }

// AcceptedText returns the accepted digests for messages.
func (c *CatalogImages) AcceptedText() string {
	switch len(c.Accepted) {
	case 0:
		return "no digest is accepted yet"
	case 1:
		return "accepted is " + c.Accepted[0]
	}
	return "accepted are " + text.Names(c.Accepted, verdict.MaxListed)
}
