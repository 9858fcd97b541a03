package olm

import (
	"crypto/sha256"
	"strings"

	"github.com/blang/semver/v4"

	"github.com/opgate/opgate/internal/apijson"
)

// ClusterExtension is a ClusterExtension of OLM v1 (olm.operatorframework.io), which is cluster-scoped.
type ClusterExtension struct {
	Metadata ObjectMeta `json:"metadata"`
	Spec     struct {
		// Namespace is where the package is installed. The API server keeps it from being changed.
		Namespace string          `json:"namespace"`
		Source    ExtensionSource `json:"source"`
	} `json:"spec"`
}

// ExtensionSource is what a ClusterExtension installs.
type ExtensionSource struct {
	Type    string `json:"sourceType"`
	Catalog struct {
		Package string `json:"packageName"`
		// Version is a range of versions in the syntax of OLM v1 (Masterminds/semver); empty for the newest one.
		Version string `json:"version"`
	} `json:"catalog"`

	// Digest is the SHA-256 of the whole source as written.
	Digest [sha256.Size]byte `json:"-"`
}

// ExtensionFromCatalog is the type of an ExtensionSource that names a package.
const ExtensionFromCatalog = "Catalog"

// UnmarshalJSON also records the digest of the whole source.
func (s *ExtensionSource) UnmarshalJSON(raw []byte) error {
	type plain ExtensionSource
	err := apijson.Unmarshal(raw, (*plain)(s))
	s.Digest = sha256.Sum256(raw)
	return err
}

// Package returns the package that is installed; empty where the source does not name one, as one of another type.
func (s *ExtensionSource) Package() string {
	if s.Type != ExtensionFromCatalog {
		return ""
	}
	return s.Catalog.Package
}

// ExactVersion returns the version that spec.source.catalog.version pins, such as "1.2.3" or "= 1.2.3"; empty if it is
// not set, is a range, or is incomplete: OLM v1 reads "1.2" as every 1.2.x.
func (s *ExtensionSource) ExactVersion() string {
	version := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(s.Catalog.Version), "="))
	if _, err := semver.Parse(version); err != nil {
		return ""
	}
	return version
}

// SameVersion reports whether OLM v1 takes two versions for the same one where a ClusterExtension pins one of them: what
// follows "+" does not count. Texts that are no full semantic versions are never the same.
func SameVersion(a, b string) bool {
	x, errX := semver.Parse(a)
	y, errY := semver.Parse(b)
	return errX == nil && errY == nil && x.EQ(y)
}

// ClusterCatalog is a ClusterCatalog of OLM v1 (olm.operatorframework.io), which is cluster-scoped.
type ClusterCatalog struct {
	Metadata ObjectMeta         `json:"metadata"`
	Spec     ClusterCatalogSpec `json:"spec"`
}

// CatalogOfImage is the type of the source of a ClusterCatalog that is an image.
const CatalogOfImage = "Image"

// ClusterCatalogSpec is what rules read of the spec of a ClusterCatalog. It is comparable with ==.
type ClusterCatalogSpec struct {
	Source struct {
		Type  string `json:"type"`
		Image struct {
			Ref string `json:"ref"`
		} `json:"image"`
	} `json:"source"`
	Priority int64 `json:"priority"`
}
