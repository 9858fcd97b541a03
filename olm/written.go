package olm

import (
	"crypto/sha256"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/opgate/opgate/internal/apijson"
	"github.com/opgate/opgate/internal/jsonsize"
)

// WrittenCatalogSource is a CatalogSource in a review.
type WrittenCatalogSource struct {
	Metadata ObjectMeta        `json:"metadata"`
	Spec     CatalogSourceSpec `json:"spec"`
}

// CatalogSourceSpec is what rules read of the spec of a CatalogSource.
type CatalogSourceSpec struct {
	SourceType string `json:"sourceType"`
	Image      string `json:"image"`
	Address    string `json:"address"`
	ConfigMap  string `json:"configMap"`
	Publisher  string `json:"publisher"`
	Priority   int64  `json:"priority"`

	// Digest is the SHA-256 of the whole spec as written.
	Digest [sha256.Size]byte `json:"-"`
}

// UnmarshalJSON also records the digest of the whole spec.
func (s *CatalogSourceSpec) UnmarshalJSON(raw []byte) error {
	type plain CatalogSourceSpec
	err := apijson.Unmarshal(raw, (*plain)(s))
	s.Digest = sha256.Sum256(raw)
	return err
}

// imageDigest is the digest of an image reference, as container runtimes read it.
var imageDigest = regexp.MustCompile(`^[^@]+@(sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})$`)

// defaultRegistry is where container runtimes pull images from that name no registry.
const defaultRegistry = "docker.io"

// ImageDigest returns the digest that the image reference ends in, such as "sha256:…"; "" for a tag.
func (s *CatalogSourceSpec) ImageDigest() string {
	if m := imageDigest.FindStringSubmatch(s.Image); m != nil {
		return m[1]
	}
	return ""
}

// Registry returns the host, with its port if there is one, that the image is pulled from; "" without an image. As for container runtimes,
// the first part of the reference is a host if it has a dot or a port, or is localhost.
func (s *CatalogSourceSpec) Registry() string {
	if s.Image == "" {
		return ""
	}
	host, _, found := strings.Cut(s.Image, "/")
	if !found || !strings.ContainsAny(host, ".:") && host != "localhost" {
		return defaultRegistry
	}
	return strings.ToLower(host)
}

// WrittenOperatorGroup is an OperatorGroup in a review.
type WrittenOperatorGroup struct {
	Metadata ObjectMeta        `json:"metadata"`
	Spec     OperatorGroupSpec `json:"spec"`
}

// OperatorGroupSpec is what rules read of the spec of an OperatorGroup.
type OperatorGroupSpec struct {
	TargetNamespaces namespaceNames  `json:"targetNamespaces"`
	Selector         writtenSelector `json:"selector"`
	ServiceAccount   string          `json:"serviceAccountName"`
	UpgradeStrategy  string          `json:"upgradeStrategy"`

	// Digest is the SHA-256 of the whole spec as written.
	Digest [sha256.Size]byte `json:"-"`
}

// UpgradeDefault is the upgradeStrategy that is the default. The other, TechPreviewUnsafeFailForward, lets OLM replace an operator whose
// installation or upgrade has failed.
const UpgradeDefault = "Default"

// UnmarshalJSON also records the digest of the whole spec.
func (s *OperatorGroupSpec) UnmarshalJSON(raw []byte) error {
	type plain OperatorGroupSpec
	err := apijson.Unmarshal(raw, (*plain)(s))
	s.Digest = sha256.Sum256(raw)
	return err
}

// AllNamespaces reports whether the group is for all namespaces. One that lists "" counts as such, although OLM rejects it.
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
	if held, _ := jsonsize.Measure(raw); held > maxGroupValues {
		*n = namespaceNames{""}
		return nil
	}
	return apijson.Unmarshal(raw, (*[]string)(n))
}

// writtenSelector summarizes a label selector: whether it has any requirement, and which.
type writtenSelector struct {
	any    bool
	digest [sha256.Size]byte
}

// UnmarshalJSON treats a selector that is too large as one that differs from every other.
func (s *writtenSelector) UnmarshalJSON(raw []byte) error {
	*s = writtenSelector{any: true, digest: sha256.Sum256(raw)}
	if n, _ := jsonsize.Measure(raw); n > maxGroupValues {
		return nil
	}
	var selector metav1.LabelSelector
	if err := apijson.Unmarshal(raw, &selector); err != nil {
		return err
	}
	normal, err := json.Marshal(&selector)
	s.any, s.digest = len(selector.MatchLabels)+len(selector.MatchExpressions) > 0, sha256.Sum256(normal)
	return err
}
