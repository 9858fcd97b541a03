package verdict

import (
	"github.com/opgate/opgate/internal/text"
)

// Consent is one by which a change passes that a policy holds.
type Consent struct {
	CSV, Digest string
	// Rule is the one that holds the change without it.
	Rule RuleID
	// Policy is the policy that holds the change without it, as used in reasons.
	Policy string
	// From is where it is given: spec.consent.accepted, or annotation opgate.io/consent. By is the user of the latter,
	// empty if not recorded. Until is when it ends, as " until <time>"; empty if it does not.
	From, By, Until string
}

// String returns the consent in words: "etcd.v0.9.4 sha256:… by spec.consent.accepted of OperatorPolicy policies/etcd".
func (c *Consent) String() string {
	by := c.From + " of " + c.Policy
	if c.From != AcceptedPath {
		by = "annotation " + c.From
		if c.By != "" {
			by += " of user " + text.Quote(c.By)
		}
		by += c.Until + " for " + c.Policy
	}
	return text.Name(c.CSV) + " " + c.Digest + " by " + by
}

// AcceptedPath is the field of a policy by which it consents: the From of a Consent.
const AcceptedPath = "spec.consent.accepted"
