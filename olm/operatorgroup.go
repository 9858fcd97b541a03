package olm

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/opgate/opgate/internal/apijson"
)

// OperatorGroup is operators.coreos.com/v1 OperatorGroup.
type OperatorGroup struct {
	Metadata ObjectMeta        `json:"metadata"`
	Spec     OperatorGroupSpec `json:"spec"`
	Status   struct {
		Namespaces namespaceNames `json:"namespaces"`
	} `json:"status"`
}

// OperatorGroupSpec is what rules read of the spec of an OperatorGroup.
type OperatorGroupSpec struct {
	TargetNamespaces namespaceNames `json:"targetNamespaces"`
	Selector         selector       `json:"selector"`
	ServiceAccount   string         `json:"serviceAccountName"`
	UpgradeStrategy  string         `json:"upgradeStrategy"`

	// Digest is the SHA-256 of the whole spec as written.
	Digest [sha256.Size]byte `json:"-"`
	// written is the JSON of the spec, unless that is larger than maxKeptGroup bytes.
	written []byte
}

// maxKeptGroup bounds what is kept of a spec as it was written, and maxWrittenGroup what Written returns, in bytes;
// maxTargets the target namespaces that are kept.
const (
	maxKeptGroup    = 64 << 10
	maxWrittenGroup = 8 << 10
	maxTargets      = 1024
)

// UpgradeDefault is the upgradeStrategy that is the default. The other, TechPreviewUnsafeFailForward, lets OLM replace
// an operator whose installation or upgrade has failed.
const UpgradeDefault = "Default"

// UnmarshalJSON also keeps what was written, and the digest of it.
func (s *OperatorGroupSpec) UnmarshalJSON(raw []byte) error {
	type plain OperatorGroupSpec
	err := apijson.Unmarshal(raw, (*plain)(s))
	s.Digest, s.written = sha256.Sum256(raw), nil
	if len(raw) <= maxKeptGroup {
		s.written = bytes.Clone(raw)
	}
	return err
}

// UnreadableGroup returns a group that does not decode, from its metadata and its JSON. It counts as one for all
// namespaces, and it is not known where permissions apply.
func UnreadableGroup(m ObjectMeta, raw []byte) *OperatorGroup {
	return &OperatorGroup{Metadata: m, Spec: OperatorGroupSpec{TargetNamespaces: namespaceNames{""},
		Digest: sha256.Sum256(raw)}}
}

// Fields returns the spec in the form of unstructured objects; nil if it is too large to be kept.
func (s *OperatorGroupSpec) Fields() (fields map[string]any) {
	if s.written != nil {
		_ = json.Unmarshal(s.written, &fields) // it was decoded before
	}
	return fields
}

// Written returns the JSON of the spec. One that is too large to be kept is represented by its account and the
// namespace of the group: that is less than the group may be for.
func (g *OperatorGroup) Written(namespace string) []byte {
	switch {
	case g.Spec.written != nil && len(g.Spec.written) <= maxWrittenGroup:
		return g.Spec.written
	case g.Spec.Digest == [sha256.Size]byte{}:
		return []byte("{}") // it has no spec
	}
	data, _ := json.Marshal(map[string]any{"targetNamespaces": []string{namespace},
		"serviceAccountName": g.Spec.ServiceAccount}) // strings always encode
	return data
}

// Trim removes from a stored group the namespaces beyond maxTargets; all but "" if they mean all.
func (g *OperatorGroup) Trim() {
	g.Metadata.Trim()
	g.Spec.TargetNamespaces.trim()
	g.Status.Namespaces.trim()
}

// AllNamespaces reports whether the group is for all namespaces. One that lists "" counts as such, although OLM rejects
// it.
func (s *OperatorGroupSpec) AllNamespaces() bool {
	return slices.Contains(s.TargetNamespaces, "") || len(s.TargetNamespaces) == 0 && !s.Selector.any
}

// Selects reports whether the group selects namespaces by labels: OLM ignores the selector beside target namespaces.
func (s *OperatorGroupSpec) Selects() bool { return len(s.TargetNamespaces) == 0 && s.Selector.any }

// SelectsAs reports whether both groups select the same namespaces by labels.
func (s *OperatorGroupSpec) SelectsAs(o *OperatorGroupSpec) bool {
	return s.Selects() && o.Selects() && s.Selector.digest == o.Selector.digest
}

// namespaceNames are names of namespaces.
type namespaceNames []string

// UnmarshalJSON treats a list that is too long as all namespaces.
func (n *namespaceNames) UnmarshalJSON(raw []byte) error {
	if held, _ := apijson.Measure(raw); held > maxGroupValues {
		*n = namespaceNames{""}
		return nil
	}
	return apijson.Unmarshal(raw, (*[]string)(n))
}

func (n *namespaceNames) trim() {
	switch {
	case slices.Contains(*n, ""):
		*n = namespaceNames{""}
	case len(*n) > maxTargets:
		*n = slices.Clone((*n)[:maxTargets])
	}
}

// selector summarizes a label selector: whether it has any requirement, and which.
type selector struct {
	any    bool
	digest [sha256.Size]byte
}

// UnmarshalJSON treats a selector that is too large as one that differs from every other.
func (s *selector) UnmarshalJSON(raw []byte) error {
	*s = selector{any: true, digest: sha256.Sum256(raw)}
	if n, _ := apijson.Measure(raw); n > maxGroupValues {
		return nil
	}
	var labels metav1.LabelSelector
	if err := apijson.Unmarshal(raw, &labels); err != nil {
		return err
	}
	normal, err := json.Marshal(&labels)
	s.any, s.digest = len(labels.MatchLabels)+len(labels.MatchExpressions) > 0, sha256.Sum256(normal)
	return err
}

// Scope is where operators get the rights that their permissions ask for.
type Scope uint8

// The scopes.
const (
	// ScopeUnknown: there is no OperatorGroup, there are several, which OLM refuses, or OLM has not acted on a change
	// of it yet.
	ScopeUnknown Scope = iota
	// ScopeNamespaces: the OperatorGroup is for named namespaces, and OLM creates Roles there.
	ScopeNamespaces
	// ScopeCluster: the OperatorGroup is for all namespaces, and OLM creates ClusterRoles.
	ScopeCluster
)

// ScopeOf returns the scope of a namespace with these OperatorGroups.
func ScopeOf(groups []*OperatorGroup) Scope {
	if len(groups) != 1 {
		return ScopeUnknown
	}
	return groups[0].scope()
}

// scope follows OLM: status.namespaces is [""] for a group without target namespaces and with an empty selector, and
// never otherwise (getOperatorGroupTargets and ensureRBACInTargetNamespace in operator-lifecycle-manager
// pkg/controller/operators/olm/operatorgroup.go). While the status contradicts the spec, OLM may act on either.
func (g *OperatorGroup) scope() Scope {
	meant := ScopeNamespaces
	if len(g.Spec.TargetNamespaces) == 0 && !g.Spec.Selector.any {
		meant = ScopeCluster
	}
	switch written := g.Status.Namespaces; {
	case slices.Contains(g.Spec.TargetNamespaces, ""): // OLM rejects it and leaves the status as it was
		return ScopeUnknown
	case len(written) > 0 && slices.Contains(written, "") != (meant == ScopeCluster):
		return ScopeUnknown
	}
	return meant
}
