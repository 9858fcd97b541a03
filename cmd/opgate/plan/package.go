package plan

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	"github.com/operator-framework/operator-registry/alpha/declcfg"
	"github.com/operator-framework/operator-registry/alpha/property"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/internal/yamlsize"
	"github.com/opgate/opgate/olm"
)

// maxBundle is the size in bytes above which a manifest of a bundle is not read.
const maxBundle = 32 << 20

// catalogPackage is a package as a catalog offers it.
type catalogPackage struct {
	name, defaultChannel string
	// channels are in the order in which OLM tries them: the default channel first, then by name.
	channels []declcfg.Channel
	bundles  map[string]*declcfg.Bundle
	// deprecated are the catalog's messages.
	deprecated map[declcfg.PackageScopedReference]string
	found      bool
}

func newPackage(pkg string) *catalogPackage {
	return &catalogPackage{name: pkg, bundles: map[string]*declcfg.Bundle{},
		deprecated: map[declcfg.PackageScopedReference]string{}}
}

// add adds an object of a file-based catalog, if it is of the package.
func (o *catalogPackage) add(meta *declcfg.Meta) error {
	if meta.Schema == declcfg.SchemaPackage && meta.Name == o.name {
		var p declcfg.Package
		err := json.Unmarshal(meta.Blob, &p)
		o.defaultChannel, o.found = p.DefaultChannel, true
		return err
	}
	if meta.Package != o.name {
		return nil
	}
	switch meta.Schema {
	case "":
		return errors.New("an object has no schema, so it is not of a file-based catalog")
	case declcfg.SchemaChannel:
		var c declcfg.Channel
		if err := json.Unmarshal(meta.Blob, &c); err != nil {
			return fmt.Errorf("channel %s: %w", text.Name(meta.Name), err)
		}
		o.channels = append(o.channels, c)
	case declcfg.SchemaBundle:
		b := &declcfg.Bundle{}
		if err := json.Unmarshal(meta.Blob, b); err != nil {
			return fmt.Errorf("bundle %s: %w", text.Name(meta.Name), err)
		}
		if o.bundles[b.Name] != nil {
			return fmt.Errorf("bundle %s appears twice", text.Name(b.Name))
		}
		o.bundles[b.Name] = b
	case declcfg.SchemaDeprecation:
		var d declcfg.Deprecation
		if err := json.Unmarshal(meta.Blob, &d); err != nil {
			return fmt.Errorf("deprecations: %w", err)
		}
		for _, e := range d.Entries {
			o.deprecated[e.Reference] = e.Message
		}
	}
	return nil
}

// complete sorts what was read, and returns an error if the catalog does not have the package.
func (o *catalogPackage) complete() (*catalogPackage, error) {
	if !o.found {
		return nil, fmt.Errorf("it has no package %s", text.Name(o.name))
	}
	slices.SortFunc(o.channels, func(a, b declcfg.Channel) int {
		switch o.defaultChannel {
		case a.Name:
			return -1
		case b.Name:
			return 1
		}
		return cmp.Compare(a.Name, b.Name)
	})
	return o, nil
}

// deprecation is a message of a catalog on a version, its channel or its package.
type deprecation struct {
	Of      string `json:"of"`
	Message string `json:"message"`
}

func (o *catalogPackage) deprecations(csv, channel string) []deprecation {
	found := []deprecation{}
	for _, of := range []struct {
		what string
		ref  declcfg.PackageScopedReference
	}{{"version", declcfg.PackageScopedReference{Schema: declcfg.SchemaBundle, Name: csv}},
		{"channel", declcfg.PackageScopedReference{Schema: declcfg.SchemaChannel, Name: channel}},
		{"package", declcfg.PackageScopedReference{Schema: declcfg.SchemaPackage}}} {
		if message, ok := o.deprecated[of.ref]; ok {
			found = append(found, deprecation{of.what, message})
		}
	}
	return found
}

// pkg is the package as rules read it.
func (o *catalogPackage) pkg(source olm.Catalog) *catalog.Package {
	p := &catalog.Package{Name: o.name, Catalog: source, DefaultChannel: o.defaultChannel,
		Deprecation: o.deprecated[declcfg.PackageScopedReference{Schema: declcfg.SchemaPackage}]}
	for _, c := range o.channels {
		channel := catalog.Channel{Name: c.Name,
			Deprecation: o.deprecated[declcfg.PackageScopedReference{Schema: declcfg.SchemaChannel, Name: c.Name}]}
		for _, e := range c.Entries {
			channel.Entries = append(channel.Entries, catalog.Entry{Name: e.Name, Version: o.versionOf(e.Name),
				Deprecation: o.deprecated[declcfg.PackageScopedReference{Schema: declcfg.SchemaBundle, Name: e.Name}]})
		}
		p.Channels = append(p.Channels, channel)
	}
	return p
}

// versionOf returns the version in property olm.package of a bundle; "" if the catalog has none.
func (o *catalogPackage) versionOf(csv string) string {
	var p property.Package
	o.property(csv, property.TypePackage, &p)
	return p.Version
}

// property decodes the first property of a type.
func (o *catalogPackage) property(csv, kind string, into any) {
	b := o.bundles[csv]
	if b == nil {
		return
	}
	i := slices.IndexFunc(b.Properties, func(p property.Property) bool { return p.Type == kind })
	if i >= 0 {
		_ = json.Unmarshal(b.Properties[i].Value, into) // what is of another type counts as unset
	}
}

// installed is what OLM resolves from.
type installed struct {
	name string
	// version is that of the ClusterServiceVersion; nil if it is not known.
	version *semver.Version
}

// stated returns a version of the catalog as an installed one.
func (o *catalogPackage) stated(csv string) installed {
	i := installed{name: csv}
	if v, err := semver.ParseTolerant(o.versionOf(csv)); err == nil {
		i.version = &v
	}
	return i
}

// needs are what a version requires of other operators: OLM installs these too, or does not move to the version.
func (o *catalogPackage) needs(csv string) []string {
	needs := []string{}
	if o.bundles[csv] == nil {
		return needs
	}
	for _, p := range o.bundles[csv].Properties {
		switch p.Type {
		case property.TypePackageRequired:
			var r property.PackageRequired
			if json.Unmarshal(p.Value, &r) == nil {
				needs = append(needs, strings.TrimSpace("package "+r.PackageName+" "+r.VersionRange))
			}
		case property.TypeGVKRequired:
			var r property.GVKRequired
			if json.Unmarshal(p.Value, &r) == nil {
				needs = append(needs, fmt.Sprintf("kind %s of %s/%s", r.Kind, r.Group, r.Version))
			}
		case property.TypeConstraint:
			needs = append(needs, "what its olm.constraint asks for")
		}
	}
	return needs
}

// contents are the manifests of a version, as JSON, nil if the catalog does not have them. minKube is the oldest
// version of Kubernetes that it runs on, "" if it requires none or the catalog has none.
func (o *catalogPackage) contents(csv string) (manifests []json.RawMessage, minKube string, err error) {
	b := o.bundles[csv]
	if b == nil {
		return nil, "", nil
	}
	for i, p := range b.Properties {
		switch p.Type {
		case property.TypeCSVMetadata:
			var metadata property.CSVMetadata
			if json.Unmarshal(p.Value, &metadata) == nil {
				minKube = cmp.Or(minKube, metadata.MinKubeVersion)
			}
		case property.TypeBundleObject:
			var object property.BundleObject
			if err = json.Unmarshal(p.Value, &object); err == nil {
				err = yamlsize.CheckAliases(object.Data, maxBundle)
			}
			if err != nil && !errors.Is(err, yamlsize.ErrTooLarge) {
				err = nil // the conversion reports what is wrong
			}
			var raw []byte
			if err == nil {
				raw, err = yaml.YAMLToJSON(object.Data)
			}
			if err != nil {
				return nil, minKube, fmt.Errorf("property %d of bundle %s: %w", i, text.Name(csv), err)
			}
			manifests = append(manifests, raw)
			var version v1alpha1.ClusterServiceVersion
			if json.Unmarshal(raw, &version) == nil && version.Kind == olm.KindClusterServiceVersion {
				minKube = cmp.Or(version.Spec.MinKubeVersion, minKube)
			}
		}
	}
	return manifests, minKube, nil
}
