// Package olmidentity verifies which account OLM writes as. A user name alone is no evidence: whoever may create a namespace
// and a ServiceAccount in it owns the name that goes with them (threat O16).
package olmidentity

import (
	"fmt"
	"strings"
	"sync/atomic"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Account is a ServiceAccount.
type Account struct{ Namespace, Name string }

const prefix = "system:serviceaccount:"

// Parse reads the user name of a ServiceAccount. Other users cannot be OLM: there is nothing to verify about them.
func Parse(username string) (Account, error) {
	rest, isServiceAccount := strings.CutPrefix(username, prefix)
	namespace, name, complete := strings.Cut(rest, ":")
	if !isServiceAccount || !complete || len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return Account{}, fmt.Errorf("%q is not the user name of a service account, %sNAMESPACE:NAME", username, prefix)
	}
	return Account{Namespace: namespace, Name: name}, nil
}

// Username is how the API server names the account.
func (a Account) Username() string { return prefix + a.Namespace + ":" + a.Name }

// String is namespace/name.
func (a Account) String() string { return a.Namespace + "/" + a.Name }

// Reason is why an identity is trusted or not. It is the label of a metric, so the set is closed.
type Reason string

const (
	// Trusted is the only reason to trust.
	Trusted Reason = "trusted"
	// Unverified means that the answer is not known yet: the process has just started, or the API server does not answer.
	Unverified Reason = "unverified"
	// Unreadable means that Opgate lacks the permission to find out.
	Unreadable Reason = "unreadable"
	// NamespaceMissing means that the namespace does not exist, or is being deleted.
	NamespaceMissing Reason = "namespace-missing"
	// ServiceAccountMissing is NamespaceMissing for the ServiceAccount.
	ServiceAccountMissing Reason = "serviceaccount-missing"
	// NamespaceYounger means that the namespace was created after Opgate's, and that no administrator acknowledged it.
	NamespaceYounger Reason = "namespace-younger"
	// RightsMissing means that the account may not do what OLM has to.
	RightsMissing Reason = "rights-missing"
)

// State is what is known of an identity.
type State struct {
	Reason Reason
	// UID is that of the ServiceAccount that was verified; "" unless it is trusted.
	UID types.UID
	// Problem says what is wrong and what to do about it; "" where it is trusted.
	Problem string
}

// Identity is the account that is configured as OLM's, and whether it is trusted at the moment. Requests read it without locks
// while a Watcher, or a test, writes it.
type Identity struct {
	account Account
	state   atomic.Pointer[State]
}

// New returns an identity that is not verified yet.
func New(account Account) *Identity {
	i := &Identity{account: account}
	i.Set(State{Reason: Unverified, Problem: "whether " + account.Username() + " is OLM is still being verified"})
	return i
}

// Account is the account that is configured.
func (i *Identity) Account() Account { return i.account }

// Set stores what is known.
func (i *Identity) Set(s State) { i.state.Store(&s) }

// State returns what is known.
func (i *Identity) State() State { return *i.state.Load() }

// Is reports whether a user is OLM. Tokens carry the UID of their ServiceAccount, which is then compared too; users who
// impersonate it, and certificates, carry none.
func (i *Identity) Is(user *authenticationv1.UserInfo) bool {
	if user.Username != i.account.Username() {
		return false
	}
	s := i.state.Load()
	return s.Reason == Trusted && sameUID(s, user)
}

func sameUID(s *State, user *authenticationv1.UserInfo) bool {
	return user.UID == "" || user.UID == string(s.UID)
}

// Doubt returns why a user that has OLM's name does not count as OLM. It reports false for OLM, and for all who have another name.
func (i *Identity) Doubt(user *authenticationv1.UserInfo) (State, bool) {
	if user.Username != i.account.Username() {
		return State{}, false
	}
	s := i.state.Load()
	switch {
	case s.Reason != Trusted:
		return *s, true
	case !sameUID(s, user):
		// Either the ServiceAccount has just been replaced and the watch lags behind, or the token is of one that is gone.
		return State{Reason: Unverified, Problem: "the token is not of the service account " + i.account.String() + " that was verified"}, true
	}
	return State{}, false
}
