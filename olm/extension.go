package olm

import (
	"cmp"
	"crypto/sha256"
	"slices"
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

// Migrated is an operator that OLM v1 manages, or that its migration tool is handing over to it: what a
// ClusterExtension or a ClusterObjectSet shows of it. It is comparable with ==.
type Migrated struct {
	// Kind and Name are those of the object that shows it, which is cluster-scoped.
	Kind, Name, UID string
	// Package is the package that is installed.
	Package string
	// From is the namespace of the Subscription that the tool replaced; empty if the tool did not create the object.
	From string
	// Into is the namespace in which OLM v1 installs; empty if that is not known, as of a ClusterObjectSet.
	Into string
	// Bundle and Version are those that OLM v1 has installed; empty if it has not yet.
	Bundle, Version string
}

// Of reports whether the operator is that of a package in a namespace of Subscriptions.
func (m *Migrated) Of(pkg, namespace string) bool {
	return m.Package != "" && m.Package == pkg && namespace != "" && namespace == cmp.Or(m.From, m.Into)
}

// maxMigratedText bounds each text of a Migrated, in bytes: names and versions are shorter.
const maxMigratedText = 512

// DecodeMigrated reads what the JSON of a ClusterExtension or of a ClusterObjectSet shows of an operator; nil if it
// shows none: a source without a package, a ClusterObjectSet that the migration tool did not create, or one that is
// archived.
func DecodeMigrated(kind string, raw []byte) (*Migrated, error) {
	o, err := Decode[migratedObject](raw)
	if err != nil {
		return nil, err
	}
	namespace, name, _ := strings.Cut(o.Metadata.Annotations.MigratedFrom, "/")
	if name == "" {
		namespace = ""
	}
	m := &Migrated{Kind: kind, Name: o.Metadata.Name, UID: o.Metadata.UID, From: namespace}
	switch kind {
	case KindClusterExtension:
		bundle := &o.Status.Install.Bundle
		m.Package, m.Into, m.Bundle, m.Version = o.Spec.Source.Package(), o.Spec.Namespace, bundle.Name, bundle.Version
	case KindClusterObjectSet:
		if m.From == "" || o.Spec.LifecycleState == "Archived" { // its objects are no longer managed
			return nil, nil
		}
		m.Package = o.Metadata.Annotations.PackageName
	}
	long := func(s string) bool { return len(s) > maxMigratedText }
	if m.Package == "" || slices.ContainsFunc([]string{m.Package, m.From, m.Into, m.Bundle, m.Version}, long) {
		return nil, nil
	}
	return m, nil
}

// migratedObject is what is read of a ClusterExtension or a ClusterObjectSet.
type migratedObject struct {
	Metadata struct {
		Name        string `json:"name"`
		UID         string `json:"uid"`
		Annotations struct {
			MigratedFrom string `json:"olm.operatorframework.io/migrated-from-subscription"`
			PackageName  string `json:"olm.operatorframework.io/package-name"`
		} `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		Namespace      string          `json:"namespace"`
		Source         ExtensionSource `json:"source"`
		LifecycleState string          `json:"lifecycleState"`
	} `json:"spec"`
	Status struct {
		Install struct {
			Bundle struct {
				Name    string `json:"name"`
				Version string `json:"version"`
			} `json:"bundle"`
		} `json:"install"`
	} `json:"status"`
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

// SameVersion reports whether OLM v1 takes two versions for the same one where a ClusterExtension pins one of them:
// what follows "+" does not count. Texts that are no full semantic versions are never the same.
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
