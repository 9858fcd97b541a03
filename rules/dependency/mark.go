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
	"github.com/opgate/opgate/internal/metakey"
)

// Digest is the hash of a Policy's spec, independent of its JSON encoding.
type Digest [sha256.Size]byte

// DigestOf returns the digest of a Policy's spec. It fails if the spec cannot be encoded.
func DigestOf(p *policyv1.Policy) (Digest, error) {
	raw, err := Canonical(p.Spec)
	if err != nil {
		return Digest{}, fmt.Errorf("encode the spec: %w", err)
	}
	return sha256.Sum256(raw), nil
}

// Canonical returns the JSON of a value with sorted keys.
func Canonical(value any) ([]byte, error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	var content any
	if err := utiljson.Unmarshal(raw, &content); err != nil {
		return nil, err
	}
	return json.Marshal(content)
}

// Verification is the content of a valid mark.
type Verification struct {
	// Narrow are kinds that the author may get only if they are namespaced.
	Narrow []schema.GroupKind
}

// Sign returns the mark of a Policy whose author's rights were verified. Narrow kinds are sorted and deduplicated.
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

// Verify reads the mark of a Policy. It is not ok unless the key signed it for this spec, namespace and name.
func Verify(key []byte, p *policyv1.Policy, digest Digest) (v Verification, ok bool) {
	fields := strings.Fields(p.Annotations[metakey.Verified])
	if len(key) == 0 || len(fields) == 0 || p.Name == "" ||
		!hmac.Equal([]byte(fields[0]), []byte(signature(key, p, digest, fields[1:]))) {
		return Verification{}, false
	}
	for _, kind := range fields[1:] {
		v.Narrow = append(v.Narrow, schema.ParseGroupKind(kind))
	}
	return v, true
}

// signature covers everything that was verified. It excludes the UID, which is not known yet when a Policy is created.
func signature(key []byte, p *policyv1.Policy, digest Digest, narrow []string) string {
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s v1\n%q %q\n%x\n%q", metakey.Verified, p.Namespace, p.Name, digest, narrow)
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// namespacedKinds are the namespaced kinds of ConstraintGroup.
var namespacedKinds = []string{"Subscription", "InstallPlan", "ClusterServiceVersion", "CatalogSource", "OperatorGroup",
	"OperatorCondition"}

// scopeKnown reports whether it is known without a cluster whether the kind is namespaced.
func (r Ref) scopeKnown() bool {
	return r.clusterScoped() || r.Group == PolicyGroup ||
		r.Group == ConstraintGroup && slices.Contains(namespacedKinds, r.Kind)
}

// UnverifiedText is why the templates of a Policy without a valid mark are not applied.
const UnverifiedText = "the rights of the Policy's author were not verified when it was written (" + string(RulePolicyEscalation) + "): " +
	"a user with the right to create what it makes has to write it again, with annotation " +
	metakey.Verified + " changed or left out, while opgate answers"

// Uncovered returns why a template is not applied although its Policy has a valid mark, "" if it is: the right to a
// dependency that turned out to be cluster-scoped, and has no namespace therefore (Policy.Scoped), was not verified.
func (v Verification) Uncovered(t *Template) string {
	for _, d := range t.Dependencies {
		if d.Namespace == "" && !d.clusterScoped() &&
			(d.scopeKnown() || slices.Contains(v.Narrow, schema.GroupKind{Group: d.Group, Kind: d.Kind})) {
			return "it waits for " + d.String() +
				", which is in no namespace, and the right of the Policy's author to get it was not verified (" + string(RulePolicyDependencyAccess) + "): " +
				"a user with the right to get all of its kind has to write the Policy again, with annotation " +
				metakey.Verified + " changed or left out"
		}
	}
	return ""
}
