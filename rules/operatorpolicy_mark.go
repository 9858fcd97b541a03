package rules

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/rules/dependency"
	"github.com/opgate/opgate/rules/lookup"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/verdict"
)

// MaxLookups bounds what the templates of one OperatorPolicy look up, since each is a request to the API server.
const MaxLookups = 20

// Lookups returns what the templates of an OperatorPolicy look up.
func Lookups(op *policyv1beta2.OperatorPolicy) []lookup.Lookup {
	if !operatorpolicy.TemplatesEnabled(op) {
		return nil
	}
	return lookup.Of(operatorpolicy.Templates(&op.Spec))
}

// SameTemplates reports whether two states of an OperatorPolicy look up the same for the same purpose.
func SameTemplates(a, b *policyv1beta2.OperatorPolicy) bool {
	before, errBefore := canonical(operatorpolicy.Templates(&a.Spec))
	now, errNow := canonical(operatorpolicy.Templates(&b.Spec))
	return errBefore == nil && errNow == nil && string(before) == string(now) &&
		operatorpolicy.TemplatesEnabled(a) == operatorpolicy.TemplatesEnabled(b)
}

// canonical returns the JSON of a value with sorted keys.
func canonical(value any) ([]byte, error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	var decoded any
	if err := json.Unmarshal(raw, &decoded); err != nil {
		return nil, err
	}
	return json.Marshal(decoded)
}

// SignAuthor returns the mark of an OperatorPolicy whose author has the rights that it needs, "" if it cannot be marked.
func SignAuthor(key []byte, op *policyv1beta2.OperatorPolicy) string {
	return signAuthor(key, op, AuthorNeeds(op))
}

// signAuthor signs what the templates look up, and the needs.
func signAuthor(key []byte, op *policyv1beta2.OperatorPolicy, needs []dependency.Need) string {
	text, err := canonical(operatorpolicy.Templates(&op.Spec))
	if err != nil || len(key) == 0 || op.Name == "" {
		return ""
	}
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s lookups v1\n%q %q\n%x", metakey.Verified, op.Namespace, op.Name,
		sha256.Sum256(text))
	for _, need := range needs {
		fmt.Fprintf(mac, "\n%q %q", need.Field, need.Rights)
	}
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// AuthorVerified reports whether an OperatorPolicy has the mark that SignAuthor returns.
func AuthorVerified(key []byte, op *policyv1beta2.OperatorPolicy) bool {
	return signed(op, SignAuthor(key, op))
}

// LookupsVerified reports whether the right to what an OperatorPolicy looks up was verified: its mark may be of a time
// before its author needed other rights.
func LookupsVerified(key []byte, op *policyv1beta2.OperatorPolicy) bool {
	return AuthorVerified(key, op) || signed(op, signAuthor(key, op, nil))
}

func signed(op *policyv1beta2.OperatorPolicy, mark string) bool {
	return mark != "" && hmac.Equal([]byte(mark), []byte(op.Annotations[metakey.Verified]))
}

// LookupNeeds returns what the author of an OperatorPolicy needs rights to: what templates find is shown in the status
// of the policy and in refusals, to everyone who may read these.
func LookupNeeds(lookups []lookup.Lookup) []dependency.Need {
	var needs []dependency.Need
	for _, l := range lookups {
		needs = append(needs, dependency.LookupNeed(l, RuleOperatorPolicyLookup, "spec"))
	}
	return needs
}

// RefuseTooManyLookups refuses an OperatorPolicy whose templates look up more than can be checked.
func RefuseTooManyLookups(v *verdict.Verdict, number int) {
	v.Add(RuleOperatorPolicyLookup, verdict.Finding{Decision: verdict.Deny, Field: "spec",
		What:     fmt.Sprintf("its templates look up %d objects", number),
		Accepted: fmt.Sprintf("they may look up %d; put the values into fewer objects", MaxLookups)})
	*v = v.Sorted()
}

// UnverifiedLookupText is why a template of an OperatorPolicy without a valid mark is not resolved.
const UnverifiedLookupText = "it looks up what is not in the policy's namespace, and the right of the policy's author to get that was not verified " +
	"(" + string(RuleOperatorPolicyLookup) + "): a user with the right to get it has to write the policy again, with annotation " +
	metakey.Verified + " changed, while opgate answers"
