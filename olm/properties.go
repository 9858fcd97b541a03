package olm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/opgate/opgate/internal/apijson"
)

// Types of properties that OLM defines.
const (
	TypePackage         = "olm.package"
	TypePackageRequired = "olm.package.required"
	TypeGVK             = "olm.gvk"
	TypeGVKRequired     = "olm.gvk.required"
	TypeConstraint      = "olm.constraint"
	TypeLabel           = "olm.label"
	TypeMaxOpenShift    = "olm.maxOpenShiftVersion"
	TypeDeprecated      = "olm.deprecated"
)

// Property is one property of a bundle, or of the cluster.
type Property struct {
	Type string `json:"type"`
	// Raw is the value as written. It is always valid JSON.
	Raw json.RawMessage `json:"value"`
}

// ParseProperties reads the properties of a bundle in the wrapper that OLM uses in bundleLookups and in the annotation
// of ClusterServiceVersions: {"properties":[{"type":"olm.package","value":{...}}]}. An empty text has no properties. It
// parses exactly as OLM does (encoding/json, PropertyListFromPropertiesAnnotation in operator-lifecycle-manager
// pkg/controller/registry/resolver/projection): a key in another case or a duplicate must not mean different things to
// two readers of one bundle. More than MaxValues values or MaxProperties properties are an error.
func ParseProperties(wrapped string) ([]Property, error) {
	if wrapped == "" {
		return nil, nil
	}
	if n, _ := apijson.Measure([]byte(wrapped)); n > MaxValues {
		return nil, fmt.Errorf("read bundle properties: they hold %d values, at most %d are read", n, MaxValues)
	}
	var list struct {
		Properties []Property `json:"properties"`
	}
	if err := json.Unmarshal([]byte(wrapped), &list); err != nil {
		return nil, fmt.Errorf("read bundle properties: %w", err)
	}
	if n := len(list.Properties); n > MaxProperties {
		return nil, fmt.Errorf("read bundle properties: there are %d, at most %d are read", n, MaxProperties)
	}
	properties := append([]Property{}, list.Properties...)
	for i := range properties {
		if len(properties[i].Raw) == 0 {
			properties[i].Raw = json.RawMessage("null")
		}
	}
	return properties, nil
}

// NamesPackage reports whether bundle properties contain the package once and as OLM marshals it,
// {"type":"olm.package","value":{...}} without white space, escapes and duplicate keys, so that a reader who does not
// decode them, such as an expression of an admission policy, reads the package that ParseBundle does.
func NamesPackage(properties string) bool {
	parts := strings.Split(properties, `"`+TypePackage+`"`)
	if len(parts) != 2 || !strings.HasSuffix(parts[0], `{"type":`) {
		return false
	}
	value, rest, _ := strings.Cut(parts[1], "}")
	contents, ok := strings.CutPrefix(value, `,"value":{`)
	keys := strings.ToLower(contents)
	return ok && (strings.HasPrefix(rest, "},") || strings.HasPrefix(rest, "}]")) && !strings.Contains(contents, `\`) &&
		strings.Contains(contents, `"packageName":"`) && !strings.Contains(contents, `"packageName":""`) &&
		strings.Count(keys, `"packagename"`) == 1 && strings.Count(keys, `"version"`) <= 1
}

// Bundle is one version of an operator, as far as it is known, whatever shows it: bundle properties, a plan, a
// ClusterServiceVersion, a Subscription, or a catalog. What is not known is empty.
type Bundle struct {
	// Name is that of the ClusterServiceVersion.
	Name string
	// Package and Version come from property olm.package.
	Package, Version string
	// Stated is the release in that property. Release is that, or else the one in Spec, and tells bundles of one version
	// apart.
	Stated, Release string
	// Channel is the one that it is installed from, and Catalog its catalog.
	Channel string
	Catalog Catalog
	// Properties are all of them, as written; Described is false if they are not known.
	Properties []Property
	Described  bool
	// Provides and Requires are capabilities in the properties: a package, or a group, version and kind.
	Provides, Requires []Capability
	// Spec is that of the ClusterServiceVersion, and Grants are the RBAC objects that come along. Fault is why they cannot
	// be read.
	Spec   *CSVSpec
	Grants []*Grants
	Fault  string
}

// Capability is something that one bundle provides and another requires: a Package, or a group, version and kind.
type Capability struct {
	Package string `json:"-"`
	Group   string `json:"group"`
	Version string `json:"version"`
	Kind    string `json:"kind"`
}

// ParseBundle reads the properties of a bundle in the wrapper that OLM uses in bundleLookups and in the annotation of
// ClusterServiceVersions: {"properties":[{"type":"olm.package","value":{...}}]}. Unknown types are ignored, as by OLM's
// resolver; a known type with a value of the wrong shape, or two packages in one bundle, is an error.
func ParseBundle(properties string) (Bundle, error) {
	list, err := ParseProperties(properties)
	if err != nil {
		return Bundle{}, fmt.Errorf("read bundle properties: %w", err)
	}
	b := Bundle{Properties: list, Described: true}
	for i, p := range list {
		if err := b.add(p.Type, p.Raw); err != nil {
			return Bundle{}, fmt.Errorf("read bundle property %d (%s): %w", i, p.Type, err)
		}
	}
	return b, nil
}

func (b *Bundle) add(propertyType string, value json.RawMessage) error {
	switch propertyType {
	case TypePackage, TypePackageRequired:
		var v struct {
			PackageName string          `json:"packageName"`
			Version     string          `json:"version"`
			Release     json.RawMessage `json:"release"`
		}
		if err := apijson.Unmarshal(value, &v); err != nil {
			return err
		}
		if v.PackageName == "" {
			return fmt.Errorf("packageName is empty")
		}
		if propertyType == TypePackageRequired {
			b.Requires = append(b.Requires, Capability{Package: v.PackageName})
			return nil
		}
		// OLM's catalogs read a key in another case as well: it must not mean different things to two readers.
		var loose struct{ Release json.RawMessage }
		if err := json.Unmarshal(value, &loose); err != nil || !bytes.Equal(loose.Release, v.Release) {
			return errors.New("key release is repeated, or in another case")
		}
		release, err := readRelease(v.Release)
		if err != nil {
			return err
		}
		if b.Package != "" && (b.Package != v.PackageName || b.Version != v.Version || b.Stated != release) {
			return fmt.Errorf("package %s %s after package %s %s in the same bundle", v.PackageName,
				VersionText(v.Version, release), b.Package, VersionText(b.Version, b.Stated))
		}
		b.Package, b.Version, b.Stated = v.PackageName, v.Version, release
		b.Provides = append(b.Provides, Capability{Package: v.PackageName})
	case TypeGVK, TypeGVKRequired:
		var c Capability
		if err := apijson.Unmarshal(value, &c); err != nil {
			return err
		}
		if propertyType == TypeGVKRequired {
			b.Requires = append(b.Requires, c)
		} else {
			b.Provides = append(b.Provides, c)
		}
	}
	return nil
}
