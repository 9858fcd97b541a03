// Package olmidentity verifies which account OLM writes as. A user name alone is no evidence: users who may create a namespace
// and a ServiceAccount in it own the name that goes with them (threat O16).
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

// Parse parses the user name of a ServiceAccount. Other users cannot be OLM: nothing about them can be verified.
func Parse(username string) (Account, error) {
	rest, isServiceAccount := strings.CutPrefix(username, prefix)
	namespace, name, complete := strings.Cut(rest, ":")
	if !isServiceAccount || !complete || len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return Account{}, fmt.Errorf("%q is not the user name of a service account, %sNAMESPACE:NAME", username, prefix)
	}
	return Account{Namespace: namespace, Name: name}, nil
}

// Username is the account's name in reviews.
func (a Account) Username() string { return prefix + a.Namespace + ":" + a.Name }

// String is namespace/name.
func (a Account) String() string { return a.Namespace + "/" + a.Name }

// Reason is why an identity is trusted or not. It is the label of a metric, so the set is closed.
type Reason string

const (
	// Trusted is the only reason to trust.
	Trusted Reason = "trusted"
	// Unverified means that the verification is not complete: the process has just started, or the API server does not answer.
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
	// UID is the UID of the verified ServiceAccount; "" unless it is trusted.
	UID types.UID
	// Problem states what is wrong and how to fix it; "" where it is trusted.
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

// Account returns the configured account.
func (i *Identity) Account() Account { return i.account }

// Set stores a state.
func (i *Identity) Set(s State) { i.state.Store(&s) }

// State returns the current state.
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

// Doubt returns why a user with OLM's name does not count as OLM. It reports false for OLM, and for users with another name.
func (i *Identity) Doubt(user *authenticationv1.UserInfo) (State, bool) {
	if user.Username != i.account.Username() {
		return State{}, false
	}
	s := i.state.Load()
	switch {
	case s.Reason != Trusted:
		return *s, true
	case !sameUID(s, user):
		// Either the ServiceAccount was replaced and the watch lags behind, or the token is of a deleted one.
		return State{Reason: Unverified, Problem: "the token is not of the service account " + i.account.String() + " that was verified"}, true
	}
	return State{}, false
}
