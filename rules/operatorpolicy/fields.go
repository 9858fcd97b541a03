package operatorpolicy

import (
	"cmp"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/change"
	"github.com/opgate/opgate/rules/verdict"
	"github.com/opgate/opgate/rules/window"
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
	if problem := NotASCII(s); problem != "" {
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

// CatalogImages is spec.catalog of a policy. Nil holds nothing.
type CatalogImages policyv1beta2.Catalog

// catalog reads spec.catalog.
func (r *reader) catalog(spec *policyv1beta2.Catalog) *CatalogImages {
	if spec != nil {
		r.digests(specPath.Child("catalog", "accepted"), spec.Accepted)
	}
	return (*CatalogImages)(spec)
}

// HoldsImage reports whether what comes from an image that is not accepted is held.
func (c *CatalogImages) HoldsImage() bool { return c != nil && c.Image == policyv1beta2.CatalogHold }

// HoldsJump reports whether what comes after a jump is held.
func (c *CatalogImages) HoldsJump() bool { return c != nil && c.Jump == policyv1beta2.CatalogHold }

// Holds reports whether any plan may be held.
func (c *CatalogImages) Holds() bool { return c.HoldsImage() || c.HoldsJump() }

// MaxChanged is the number of packages that an image may change without being a jump.
func (c *CatalogImages) MaxChanged() int { return cmp.Or(int(c.MaxChangedPackages), defaultMaxChanged) }

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

// calendar reads when a policy lets plans be approved. What is not valid is left out, and makes the policy one that
// cannot be read.
func (r *reader) calendar(spec *policyv1beta2.OperatorPolicySpec) (calendar window.Calendar) {
	path := specPath.Child("approvalWindows")
	for i := range spec.ApprovalWindows {
		if !r.admits(path.String()) {
			break
		}
		from := &spec.ApprovalWindows[i]
		w, errs := window.New(path.Index(i), from.Cron, from.TimeZone, from.Duration)
		r.add(errs...)
		calendar.Windows = append(calendar.Windows, w)
	}
	path = specPath.Child("freezes")
	for i := range spec.Freezes {
		if !r.admits(path.String()) {
			break
		}
		from := &spec.Freezes[i]
		start, errStart := moment(path.Index(i).Child("start"), from.Start)
		end, errEnd := moment(path.Index(i).Child("end"), from.End)
		if r.add(append(errStart, errEnd...)...); len(errStart)+len(errEnd) > 0 {
			continue
		}
		if !start.Before(end) {
			r.invalid(path.Index(i).Child("end"), from.End, "must be after start, "+strconv.Quote(from.Start))
		}
		calendar.Freezes = append(calendar.Freezes, window.Freeze{Start: start, End: end, Reason: from.Reason})
	}
	return calendar
}

// moment reads a time of a spec.
func moment(path *field.Path, value string) (time.Time, field.ErrorList) {
	t, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return t, field.ErrorList{field.Invalid(path, value,
			"must be a time as in RFC 3339, such as 2026-12-15T00:00:00Z or 2026-12-15T00:00:00+01:00")}
	}
	return t, nil
}

// Age is spec.minimumAge with spec.urgent, prepared for judging. The zero value holds nothing.
type Age struct {
	// Least is how long a catalog has to have offered a version; 0 for any time.
	Least time.Duration
	// Text is the duration as the policy has it.
	Text string
	// Urgent are the names that it does not hold.
	Urgent VersionList
}

// Holds reports whether any plan may be held.
func (a *Age) Holds() bool { return a.Least > 0 }

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
	present := readEarlier(policyv1beta2.StatusConfigAction(earlier))
	return present != "" && config != "" && string(present) != config
}

// earlierValue returns the statusConfig value of a field, by its name in Go.
func earlierValue(spec *policyv1beta2.OperatorPolicySpec, name string) policyv1beta2.StatusConfigAction {
	if spec.StatusConfig == nil {
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
	before := &policyv1beta2.OperatorPolicySpec{}
	if old != nil {
		before = &old.Spec
	}
	filled = op.Spec.ComplianceConfig
	fields := reflect.ValueOf(&filled).Elem()
	for i := range fields.NumField() {
		value, name := fields.Field(i), fields.Type().Field(i).Name
		earlier := earlierValue(&op.Spec, name)
		follows := earlier != earlierValue(before, name) &&
			value.String() == reflect.ValueOf(before.ComplianceConfig).Field(i).String()
		if value.String() != "" && !follows {
			continue
		}
		next := readEarlier(earlier)
		switch {
		case next != "" && string(next) != value.String():
			value.SetString(string(next))
			copied = true
		case value.String() == "" && name == "DeploymentsUnavailable":
			value.SetString(string(policyv1beta2.ConfigNonCompliant))
		case value.String() == "":
			value.SetString(string(policyv1beta2.ConfigCompliant))
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
