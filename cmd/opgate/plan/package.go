package plan

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

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
func (o *catalogPackage) add(meta *declcfg.Meta) (err error) {
	decode := func(into any) {
		if err = json.Unmarshal(meta.Blob, into); err != nil {
			err = fmt.Errorf("%s %s: %w", meta.Schema, text.Name(meta.Name), err)
		}
	}
	switch {
	case meta.Schema == declcfg.SchemaPackage && meta.Name == o.name:
		var p declcfg.Package
		decode(&p)
		o.defaultChannel, o.found = p.DefaultChannel, true
	case meta.Package != o.name:
	case meta.Schema == "":
		return errors.New("an object has no schema, so it is not of a file-based catalog")
	case meta.Schema == declcfg.SchemaChannel:
		var c declcfg.Channel
		decode(&c)
		o.channels = append(o.channels, c)
	case meta.Schema == declcfg.SchemaBundle && o.bundles[meta.Name] != nil:
		return fmt.Errorf("bundle %s appears twice", text.Name(meta.Name))
	case meta.Schema == declcfg.SchemaBundle:
		o.bundles[meta.Name] = &declcfg.Bundle{}
		decode(o.bundles[meta.Name])
	case meta.Schema == declcfg.SchemaDeprecation:
		var d declcfg.Deprecation
		decode(&d)
		for _, e := range d.Entries {
			o.deprecated[e.Reference] = e.Message
		}
	}
	return err
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
			err := json.Unmarshal(p.Value, &object)
			if large := yamlsize.CheckAliases(object.Data, maxBundle); errors.Is(large, yamlsize.ErrTooLarge) {
				err = large
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
