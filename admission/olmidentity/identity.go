// Package olmidentity verifies which account OLM writes as. A user name alone is no evidence: users who may create a
// namespace and a ServiceAccount in it own the name that goes with them.
package olmidentity

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Account is what OLM authenticates as: a ServiceAccount, or, where OLM runs outside of the cluster, as on hosted
// control planes, the user of a client certificate.
type Account struct {
	// Namespace and Name are those of the ServiceAccount; "" for a user.
	Namespace, Name string
	// User is the name of a user that is no ServiceAccount.
	User string
}

const (
	prefix = "system:serviceaccount:"
	// masters is the group that the API server allows everything, whatever RBAC reports.
	masters = "system:masters"
)

// userName is a user name that needs no escaping in CEL and YAML. Names with @, which identity providers hand out, are
// not among them.
var userName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9:._-]{0,251}[A-Za-z0-9])?$`)

// Parse parses the user name of OLM.
func Parse(username string) (Account, error) {
	if strings.HasPrefix(username, strings.TrimSuffix(prefix, ":")) {
		return parseServiceAccount(username)
	}
	if !userName.MatchString(username) || username == "system:anonymous" {
		return Account{}, fmt.Errorf(
			"%q is not the user name of a service account, %sNAMESPACE:NAME, or of a client certificate", username,
			prefix)
	}
	return Account{User: username}, nil
}

func parseServiceAccount(username string) (Account, error) {
	rest, isServiceAccount := strings.CutPrefix(username, prefix)
	namespace, name, complete := strings.Cut(rest, ":")
	if !isServiceAccount || !complete || len(validation.IsDNS1123Label(namespace)) > 0 ||
		len(validation.IsDNS1123Subdomain(name)) > 0 {
		return Account{}, fmt.Errorf("%q is not the user name of a service account, %sNAMESPACE:NAME", username, prefix)
	}
	return Account{Namespace: namespace, Name: name}, nil
}

// IsServiceAccount reports whether the account is a ServiceAccount.
func (a Account) IsServiceAccount() bool { return a.User == "" }

// Username is the account's name in reviews.
func (a Account) Username() string {
	if !a.IsServiceAccount() {
		return a.User
	}
	return prefix + a.Namespace + ":" + a.Name
}

// String is namespace/name of a ServiceAccount, and the name of a user.
func (a Account) String() string {
	if !a.IsServiceAccount() {
		return a.User
	}
	return a.Namespace + "/" + a.Name
}

// Reason is why an identity is trusted or not. It is the label of a metric, so the set is closed.
type Reason string

const (
	// Trusted is the only reason to trust.
	Trusted Reason = "trusted"
	// Unverified means that the verification is not complete: the process has just started, or the API server does not
	// answer.
	Unverified Reason = "unverified"
	// Unreadable means that Opgate lacks the permission to read the objects.
	Unreadable Reason = "unreadable"
	// NamespaceMissing means that the namespace does not exist, or is being deleted.
	NamespaceMissing Reason = "namespace-missing"
	// ServiceAccountMissing is NamespaceMissing for the ServiceAccount.
	ServiceAccountMissing Reason = "serviceaccount-missing"
	// NamespaceYounger means that the namespace was created after Opgate's, and that no administrator acknowledged it.
	NamespaceYounger Reason = "namespace-younger"
	// RightsMissing means that the account lacks a right that OLM needs.
	RightsMissing Reason = "rights-missing"
)

// State is the result of a verification.
type State struct {
	Reason Reason
	// UID is the UID of the verified ServiceAccount; "" unless it is trusted, and for a user.
	UID types.UID
	// Group is the group that a request of a trusted user must have as well, since the name alone has no rights; "" for
	// none.
	Group string
	// Problem states what is wrong and how to fix it; "" where it is trusted.
	Problem string
}

// Identity is the account that is configured as OLM's, and whether it is trusted at the moment. Requests read it
// without locks while a Watcher, or a test, writes it.
type Identity struct {
	account  Account
	username string // of the account, which each review is compared with
	state    atomic.Pointer[State]
	seen     atomic.Int64 // seconds since 1970, 0 for never
}

// New returns an identity that is not verified yet.
func New(account Account) *Identity {
	i := &Identity{account: account, username: account.Username()}
	i.Set(State{Reason: Unverified, Problem: "whether " + i.username + " is OLM is still being verified"})
	return i
}

// Account returns the configured account.
func (i *Identity) Account() Account { return i.account }

// Set stores a state.
func (i *Identity) Set(s State) { i.state.Store(&s) }

// State returns the current state.
func (i *Identity) State() State { return *i.state.Load() }

// Seen records when OLM wrote something.
func (i *Identity) Seen(at time.Time) { i.seen.Store(at.Unix()) }

// Is reports whether a user is OLM. Tokens carry the UID of their ServiceAccount, which is then compared too; users who
// impersonate it, and certificates, carry none.
func (i *Identity) Is(user *authenticationv1.UserInfo) bool {
	if user.Username != i.username {
		return false
	}
	s := i.state.Load()
	return s.Reason == Trusted && i.sameUID(s, user) && s.hasGroup(user)
}

// sameUID reports whether a user may be the one that was verified. A user that is no ServiceAccount is verified by
// name.
func (i *Identity) sameUID(s *State, user *authenticationv1.UserInfo) bool {
	return !i.account.IsServiceAccount() || user.UID == "" || user.UID == string(s.UID)
}

func (s *State) hasGroup(user *authenticationv1.UserInfo) bool {
	return s.Group == "" || slices.Contains(user.Groups, s.Group)
}

// Untrusted returns why a user with OLM's name does not count as OLM. It reports false for OLM, and for users with
// another name.
func (i *Identity) Untrusted(user *authenticationv1.UserInfo) (State, bool) {
	if user.Username != i.username {
		return State{}, false
	}
	s := i.state.Load()
	switch {
	case s.Reason != Trusted:
		return *s, true
	case !s.hasGroup(user):
		return State{Reason: RightsMissing, Problem: "user " + i.account.User +
			" may not escalate ClusterRoles, as OLM may, and the request is not of group " +
			s.Group + ", which may; opgate reviews the rights of the name when it starts"}, true
	case !i.sameUID(s, user):
		// Either the ServiceAccount was replaced and the watch lags behind, or the token is of a deleted one.
		return State{Reason: Unverified, Problem: "the token is not of the service account " + i.account.String() +
			" that was verified"}, true
	}
	return State{}, false
}

// NewCollector returns the metric opgate_olm_identity_trusted. There is one sample at a time, with the reason that
// counts.
func NewCollector(identity *Identity) prometheus.Collector {
	trusted := prometheus.NewDesc("opgate_olm_identity_trusted",
		"Whether the configured account of OLM is trusted (1) or not (0), by reason.", []string{"reason"}, nil)
	return prometheus.CollectorFunc(func(out chan<- prometheus.Metric) {
		reason, value := identity.State().Reason, 0.0
		if reason == Trusted {
			value = 1
		}
		out <- prometheus.MustNewConstMetric(trusted, prometheus.GaugeValue, value, string(reason))
	})
}

// NewLastSeen returns the metric opgate_olm_identity_last_seen_timestamp_seconds: one sample, with the account as a
// label.
func NewLastSeen(identity *Identity) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "opgate_olm_identity_last_seen_timestamp_seconds",
		Help:        "Seconds since 1970 at which a review of a write by OLM was last answered by this replica; 0 before the first.",
		ConstLabels: prometheus.Labels{"identity": identity.Account().Username()},
	}, func() float64 { return float64(identity.seen.Load()) })
}
