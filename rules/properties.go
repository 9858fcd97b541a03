package rules

import (
	"encoding/json"
	"fmt"

	kjson "sigs.k8s.io/json"

	"github.com/opgate/opgate/rules/constraint"
)

// Property types of bundles that rules read; OLM's manual, Section 2.4, lists them.
const (
	typePackage         = "olm.package"
	typePackageRequired = "olm.package.required"
	typeGVK             = "olm.gvk"
	typeGVKRequired     = "olm.gvk.required"
)

// Bundle is what a bundle's properties say of it.
type Bundle struct {
	// Package and Version come from olm.package; empty where it is missing.
	Package string
	Version string
	// Properties are all of them, as they are written.
	Properties []constraint.Property
	// provides and requires are capabilities: a package, or a group, version and kind.
	provides []capability
	requires []capability
}

// capability is something that one bundle offers and another needs. Either pkg is set, or the rest.
type capability struct {
	pkg                  string
	group, version, kind string
}

// ParseBundle reads the properties of a bundle in the wrapper that OLM uses in bundleLookups and in the
// annotation of ClusterServiceVersions: {"properties":[{"type":"olm.package","value":{...}}]}. Unknown
// types are left alone, as OLM's resolver does; a known type with a value of the wrong shape, or two
// packages in one bundle, is an error.
func ParseBundle(properties string) (Bundle, error) {
	list, err := constraint.ParseBundleProperties(properties)
	if err != nil {
		return Bundle{}, fmt.Errorf("read bundle properties: %w", err)
	}
	b := Bundle{Properties: list}
	for i, p := range list {
		if err := b.add(p.Type, p.Raw); err != nil {
			return Bundle{}, fmt.Errorf("read bundle property %d (%s): %w", i, p.Type, err)
		}
	}
	return b, nil
}

func (b *Bundle) add(propertyType string, value json.RawMessage) error {
	switch propertyType {
	case typePackage, typePackageRequired:
		var v struct {
			PackageName string `json:"packageName"`
			Version     string `json:"version"`
		}
		if err := kjson.UnmarshalCaseSensitivePreserveInts(value, &v); err != nil {
			return err
		}
		if v.PackageName == "" {
			return fmt.Errorf("packageName is empty")
		}
		if propertyType == typePackageRequired {
			b.requires = append(b.requires, capability{pkg: v.PackageName})
			return nil
		}
		if b.Package != "" && (b.Package != v.PackageName || b.Version != v.Version) {
			return fmt.Errorf("package %s %s after package %s %s in the same bundle", v.PackageName, v.Version, b.Package, b.Version)
		}
		b.Package, b.Version = v.PackageName, v.Version
		b.provides = append(b.provides, capability{pkg: v.PackageName})
	case typeGVK, typeGVKRequired:
		var v struct {
			Group   string `json:"group"`
			Version string `json:"version"`
			Kind    string `json:"kind"`
		}
		if err := kjson.UnmarshalCaseSensitivePreserveInts(value, &v); err != nil {
			return err
		}
		c := capability{group: v.Group, version: v.Version, kind: v.Kind}
		if propertyType == typeGVKRequired {
			b.requires = append(b.requires, c)
		} else {
			b.provides = append(b.provides, c)
		}
	}
	return nil
}
