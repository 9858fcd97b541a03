package dependency

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	policyv1 "github.com/opgate/opgate/api/policy/v1"
)

// AnnotationVerified is the mark of a Policy whose author's rights were verified: "<signature> [<kind>.<group>...]". It is set at
// admission and signed with a key that Opgate alone has, so that no one else can write one, also while Opgate does not answer
// (threat O21). The kinds are those that the author may not get in the whole cluster: should they have no namespaces, the
// dependencies on them are not verified.
const AnnotationVerified = "opgate.io/verified"

// Digest stands for the spec of a Policy, whichever way its JSON was written.
type Digest [sha256.Size]byte

// DigestOf returns the digest of a Policy's spec. It fails where the spec has no JSON.
func DigestOf(p *policyv1.Policy) (Digest, error) {
	raw, err := json.Marshal(p.Spec)
	if err != nil {
		return Digest{}, fmt.Errorf("encode the spec: %w", err)
	}
	var content any
	if err := utiljson.Unmarshal(raw, &content); err != nil {
		return Digest{}, fmt.Errorf("read the spec: %w", err)
	}
	if raw, err = json.Marshal(content); err != nil { // which sorts the keys
		return Digest{}, fmt.Errorf("encode the spec: %w", err)
	}
	return sha256.Sum256(raw), nil
}

// Verification is what a valid mark says.
type Verification struct {
	// Narrow are kinds that the author may get only where they have namespaces.
	Narrow []schema.GroupKind
}

// Sign returns the mark of a Policy whose author's rights were verified. Narrow kinds are sorted, each once.
func Sign(key []byte, p *policyv1.Policy, digest Digest, v Verification) string {
	kinds := make([]string, len(v.Narrow))
	for i, kind := range v.Narrow {
		kinds[i] = kind.String()
	}
	slices.Sort(kinds)
	fields := append([]string{""}, slices.Compact(kinds)...)
	fields[0] = signature(key, p, digest, fields[1:])
	return strings.Join(fields, " ")
}

// Verify reads the mark of a Policy. It is not ok where there is none that the key has signed for this very spec, namespace and name.
func Verify(key []byte, p *policyv1.Policy, digest Digest) (v Verification, ok bool) {
	fields := strings.Fields(p.Annotations[AnnotationVerified])
	if len(key) == 0 || len(fields) == 0 || p.Name == "" || !hmac.Equal([]byte(fields[0]), []byte(signature(key, p, digest, fields[1:]))) {
		return Verification{}, false
	}
	for _, kind := range fields[1:] {
		v.Narrow = append(v.Narrow, schema.ParseGroupKind(kind))
	}
	return v, true
}

// signature covers all that was verified. The UID is not part of it: it is not known yet when a Policy is created.
func signature(key []byte, p *policyv1.Policy, digest Digest, narrow []string) string {
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s v1\n%q %q\n%x\n%q", AnnotationVerified, p.Namespace, p.Name, digest, narrow)
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// Scope says whether objects of a kind have namespaces.
type Scope int

// The scopes.
const (
	// ScopeUnknown is that of kinds that only the cluster knows.
	ScopeUnknown Scope = iota
	ScopeNamespaced
	ScopeCluster
)

// namespacedKinds are those of ConstraintGroup that have namespaces.
var namespacedKinds = []string{"Subscription", "InstallPlan", "ClusterServiceVersion", "CatalogSource", "OperatorGroup", "OperatorCondition"}

// Scope returns what is known of the kind without a cluster.
func (r Ref) Scope() Scope {
	switch {
	case r.clusterScoped():
		return ScopeCluster
	case r.Group == PolicyGroup, r.Group == ConstraintGroup && slices.Contains(namespacedKinds, r.Kind):
		return ScopeNamespaced
	}
	return ScopeUnknown
}

// Covers reports whether the rights to a dependency were verified as well. Namespaces are left out of dependencies that have none
// (Policy.Scoped).
func (v Verification) Covers(d Dependency) bool {
	if d.Namespace != "" {
		return true
	}
	switch d.Scope() {
	case ScopeCluster:
		return true
	case ScopeUnknown:
		return !slices.Contains(v.Narrow, schema.GroupKind{Group: d.Group, Kind: d.Kind})
	case ScopeNamespaced: // the definition is not the one that was thought of
	}
	return false
}

// UnverifiedText is why nothing is made of a Policy without a valid mark.
const UnverifiedText = "the rights of the Policy's author were not verified when it was written (policy/escalation): " +
	"whoever may create what it makes writes it again, with annotation " + AnnotationVerified + " changed or left out, while opgate answers"

// narrowText is why a template is not applied that waits for something that its author may not read.
func narrowText(d Dependency) string {
	return "it waits for " + d.String() + ", which is in no namespace, and the right of the Policy's author to get that was not verified (policy/dependency-access): " +
		"whoever may get all of its kind writes the Policy again, with annotation " + AnnotationVerified + " changed or left out"
}

// Uncovered is why a template is not applied though its Policy has a valid mark, "" if it is.
func (v Verification) Uncovered(t *Template) string {
	for _, d := range t.Dependencies {
		if !v.Covers(d) {
			return narrowText(d)
		}
	}
	return ""
}
