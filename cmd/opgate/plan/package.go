package plan

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/blang/semver/v4"
	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	"github.com/operator-framework/operator-registry/alpha/model"
	"github.com/operator-framework/operator-registry/alpha/property"
	"github.com/operator-framework/operator-registry/pkg/api"

	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/internal/text"
)

// catalogPackage is a package as a catalog serves it.
type catalogPackage struct {
	// Package has the channels in the order in which OLM tries them: the default channel first, then by name.
	*catalog.Package
	// bundles are the versions of each channel, by name.
	bundles map[string][]*api.Bundle
}

// newPackage returns a package of a catalog. A bundle of a channel that the package does not have is left out.
func newPackage(p *api.Package, bundles []*api.Bundle) *catalogPackage {
	o := &catalogPackage{bundles: map[string][]*api.Bundle{}, Package: &catalog.Package{Name: p.Name,
		DefaultChannel: p.DefaultChannelName, Deprecation: p.Deprecation.GetMessage()}}
	slices.SortFunc(bundles, func(a, b *api.Bundle) int { return cmp.Compare(a.CsvName, b.CsvName) })
	for _, c := range p.Channels {
		channel := catalog.Channel{Name: c.Name, Deprecation: c.Deprecation.GetMessage()}
		for _, b := range bundles {
			if b.ChannelName == c.Name {
				o.bundles[c.Name] = append(o.bundles[c.Name], b)
				channel.Entries = append(channel.Entries,
					catalog.Entry{Name: b.CsvName, Version: b.Version, Deprecation: b.Deprecation.GetMessage()})
			}
		}
		o.Channels = append(o.Channels, channel)
	}
	slices.SortFunc(o.Channels, func(a, b catalog.Channel) int {
		switch o.DefaultChannel {
		case a.Name:
			return -1
		case b.Name:
			return 1
		}
		return cmp.Compare(a.Name, b.Name)
	})
	return o
}

// served returns a package of a file-based catalog as opm serves it.
func served(p *model.Package) (*catalogPackage, error) {
	of := &api.Package{Name: p.Name, DefaultChannelName: p.DefaultChannel.Name, Deprecation: deprecated(p.Deprecation)}
	var bundles []*api.Bundle
	for _, c := range p.Channels {
		of.Channels = append(of.Channels, &api.Channel{Name: c.Name, Deprecation: deprecated(c.Deprecation)})
		for _, b := range c.Bundles {
			bundle, err := api.ConvertModelBundleToAPIBundle(*b)
			if err != nil {
				return nil, fmt.Errorf("bundle %s: %w", text.Name(b.Name), err)
			}
			bundles = append(bundles, bundle)
		}
	}
	return newPackage(of, bundles), nil
}

func deprecated(d *model.Deprecation) *api.Deprecation {
	if d == nil {
		return nil
	}
	return &api.Deprecation{Message: d.Message}
}

// bundle returns a version; nil if no channel has it.
func (o *catalogPackage) bundle(csv string) *api.Bundle {
	for _, bundles := range o.bundles {
		if i := slices.IndexFunc(bundles, func(b *api.Bundle) bool { return b.CsvName == csv }); i >= 0 {
			return bundles[i]
		}
	}
	return nil
}

// propertyOf returns the first property of a type; nil if there is none, or it is not JSON.
func propertyOf(b *api.Bundle, kind string) (value any) {
	for _, p := range b.GetProperties() {
		if p.Type == kind {
			_ = json.Unmarshal([]byte(p.Value), &value) // as for OLM, it then counts as unset
			break
		}
	}
	return value
}

// propertiesOf returns the properties of a bundle as OLM writes them.
func propertiesOf(b *api.Bundle) string {
	all := []property.Property{}
	for _, p := range b.GetProperties() {
		all = append(all, property.Property{Type: p.Type, Value: json.RawMessage(p.Value)})
	}
	raw, _ := json.Marshal(map[string]any{"properties": all}) // a value that is not JSON leaves none
	return string(raw)
}

// csvOf returns the ClusterServiceVersion of a bundle; the zero value if the catalog has none.
func csvOf(b *api.Bundle) (csv v1alpha1.ClusterServiceVersion) {
	_ = json.Unmarshal([]byte(b.GetCsvJson()), &csv) // OLM does not read it either
	return csv
}

// manifestsOf returns the manifests of a bundle; nil if the catalog does not have them. Of most bundles it has an image
// and some metadata, which opm serves as a ClusterServiceVersion that installs nothing.
func manifestsOf(b *api.Bundle) (manifests []json.RawMessage) {
	install := csvOf(b).Spec.InstallStrategy.StrategySpec
	if b.GetBundlePath() != "" && len(b.Object) == 1 &&
		len(install.DeploymentSpecs)+len(install.Permissions)+len(install.ClusterPermissions) == 0 {
		return nil
	}
	for _, object := range b.GetObject() {
		manifests = append(manifests, json.RawMessage(object))
	}
	return manifests
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
	if v, err := semver.ParseTolerant(o.bundle(csv).GetVersion()); err == nil {
		i.version = &v
	}
	return i
}
