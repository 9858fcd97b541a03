package plan

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/blang/semver/v4"
	"github.com/operator-framework/operator-registry/alpha/model"
	"github.com/operator-framework/operator-registry/alpha/property"

	"github.com/opgate/opgate/catalog"
)

// catalogPackage is a package as a catalog serves it.
type catalogPackage struct {
	*catalog.Package
	// channels are in the order in which OLM tries them: the default channel first, then by name.
	channels []*model.Channel
}

// newPackage returns a package of a catalog.
func newPackage(p *model.Package) *catalogPackage {
	o := &catalogPackage{Package: &catalog.Package{Name: p.Name, DefaultChannel: p.DefaultChannel.Name,
		Deprecation: message(p.Deprecation)}}
	names := slices.Sorted(maps.Keys(p.Channels))
	if i := slices.Index(names, o.DefaultChannel); i > 0 {
		names = slices.Insert(slices.Delete(names, i, i+1), 0, o.DefaultChannel)
	}
	for _, name := range names {
		c := p.Channels[name]
		o.channels = append(o.channels, c)
		channel := catalog.Channel{Name: name, Deprecation: message(c.Deprecation)}
		for _, csv := range csvsOf(c) {
			b := c.Bundles[csv]
			channel.Entries = append(channel.Entries,
				catalog.Entry{Name: csv, Version: b.Version.String(), Deprecation: message(b.Deprecation)})
		}
		o.Channels = append(o.Channels, channel)
	}
	return o
}

func message(d *model.Deprecation) string {
	if d == nil {
		return ""
	}
	return d.Message
}

// csvsOf returns the names of the versions of a channel, sorted.
func csvsOf(c *model.Channel) []string { return slices.Sorted(maps.Keys(c.Bundles)) }

// bundle returns a version; nil if no channel has it.
func (o *catalogPackage) bundle(csv string) *model.Bundle {
	for _, c := range o.channels {
		if b := c.Bundles[csv]; b != nil {
			return b
		}
	}
	return nil
}

// platforms returns the oldest Kubernetes and the newest OpenShift of a version; "" if the catalog has none.
func (o *catalogPackage) platforms(b *model.Bundle) (kubernetes, openShift string) {
	if c, err := o.contents(b.Name); err == nil {
		if csv, err := c.ClusterServiceVersion(); err == nil {
			kubernetes = csv.Spec.MinKubeVersion
		}
	}
	for _, p := range b.Properties {
		switch p.Type {
		case property.TypeCSVMetadata:
			var metadata property.CSVMetadata
			_ = json.Unmarshal(p.Value, &metadata) // as for OLM, what is not JSON counts as unset
			kubernetes = cmp.Or(kubernetes, metadata.MinKubeVersion)
		case "olm.maxOpenShiftVersion":
			var version any
			if json.Unmarshal(p.Value, &version) == nil {
				openShift = fmt.Sprint(version)
			}
		}
	}
	return kubernetes, openShift
}

// propertiesOf returns the properties of a version as OLM writes them; "" if it is not known.
func propertiesOf(b *model.Bundle) string {
	if b == nil {
		return ""
	}
	all := slices.DeleteFunc(slices.Clone(b.Properties), func(p property.Property) bool {
		return p.Type == property.TypeBundleObject || p.Type == property.TypeCSVMetadata
	})
	raw, _ := json.Marshal(map[string]any{"properties": all}) // a value that is not JSON leaves none
	return string(raw)
}

// installed is what OLM resolves from.
type installed struct {
	name string
	// version is that of the ClusterServiceVersion; nil if it is not known.
	version *semver.Version
}

// stated returns a version of the catalog as an installed one.
func (o *catalogPackage) stated(csv string) installed {
	if b := o.bundle(csv); b != nil {
		return installed{csv, &b.Version}
	}
	return installed{name: csv}
}
