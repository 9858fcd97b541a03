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
	"github.com/opgate/opgate/internal/text"
)

// path returns the steps that OLM takes from what is installed through a channel, "" for all of them, and why there is
// no further one. OLM makes a plan for the first version in its order that follows what is installed, whatever the gate
// decides on it. What a version needs of other operators counts as available.
func (o *catalogPackage) path(from installed, channel, starting string) (steps []*step, end string) {
	steps = []*step{}
	for seen := map[string]bool{from.name: true}; ; {
		next, problem := o.next(from, channel, starting)
		switch {
		case problem != "":
			return steps, problem
		case next == nil || next.CSV == from.name:
			return steps, o.deadEnd(from, channel)
		case seen[next.CSV]:
			return append(steps, next), "it goes round: " + next.CSV + " was installed before"
		}
		seen[next.CSV] = true
		steps, from = append(steps, next), o.stated(next.CSV)
	}
}

// followed returns the channel, or all for "".
func (o *catalogPackage) followed(channel string) []*model.Channel {
	return slices.DeleteFunc(slices.Clone(o.channels),
		func(c *model.Channel) bool { return channel != "" && c.Name != channel })
}

// next returns the version that OLM makes a plan for, nil for none, or why OLM resolves nothing. It is what
// getSubscriptionVariables and sortChannel do in OLM's resolver (pkg/controller/registry/resolver/resolver.go).
func (o *catalogPackage) next(from installed, channel, starting string) (next *step, problem string) {
	channels := o.followed(channel)
	if len(channels) == 0 {
		var names []string
		for _, c := range o.channels {
			names = append(names, c.Name)
		}
		return nil, fmt.Sprintf("package %s has no channel %s: it has %s", text.Name(o.Name), text.Name(channel),
			text.Names(names, maxNamed))
	}
	for _, c := range channels {
		if from.name == "" && starting != "" {
			c = &model.Channel{Name: c.Name, Bundles: maps.Clone(c.Bundles)}
			maps.DeleteFunc(c.Bundles, func(csv string, _ *model.Bundle) bool { return csv != starting })
		}
		chain, problem := order(c)
		if problem != "" {
			return nil, problem
		}
		for _, b := range chain {
			edge := follows(b, from)
			if edge == "" || next != nil || skippedBy(c, b.Name) != "" {
				continue
			}
			next = &step{CSV: b.Name, Version: b.Version.String(), Channel: c.Name, From: from.name, Edge: edge}
			if edge == "skipRange" {
				next.SkipRange = b.SkipRange
			}
		}
	}
	return next, ""
}

// maxNamed bounds the names in a sentence.
const maxNamed = 8

// follows returns the edge by which a version follows what is installed, "" for none.
func follows(b *model.Bundle, from installed) string {
	switch {
	case from.name == "":
		return "install"
	case b.Replaces == from.name:
		return "replaces"
	case slices.Contains(b.Skips, from.name):
		return "skips"
	case from.version == nil || b.SkipRange == "":
		return ""
	}
	if includes, err := semver.ParseRange(b.SkipRange); err == nil && includes(*from.version) {
		return "skipRange"
	}
	return ""
}

// order returns the versions of a channel in the order in which OLM prefers them, the newest first, or why OLM cannot
// order them: the chain of what each replaces. Those of it that another one skips are never installed.
func order(c *model.Channel) (chain []*model.Bundle, problem string) {
	if len(c.Bundles) == 0 {
		return nil, ""
	}
	head, err := c.Head()
	for b := head; err == nil && b != nil; b = c.Bundles[b.Replaces] {
		if slices.Contains(chain, b) {
			err = fmt.Errorf("what %s replaces goes round", text.Name(head.Name))
		}
		chain = append(chain, b)
	}
	if err != nil {
		return nil, fmt.Sprintf("OLM does not order channel %s, and makes no plan in the namespace: %s", text.Name(c.Name),
			text.Escape(err.Error()))
	}
	return chain, ""
}

func inChannel(channel string) string {
	if channel == "" {
		return "any channel"
	}
	return "channel " + text.Name(channel)
}

// deadEnd returns why no version follows what is installed.
func (o *catalogPackage) deadEnd(from installed, channel string) string {
	if from.name == "" {
		return "nothing is installed, and there is no version of " + inChannel(channel) + " to begin with"
	}
	name := text.Name(from.name)
	var newestOf []string
	for _, c := range o.followed(channel) {
		if chain, _ := order(c); len(chain) > 0 && chain[0].Name == from.name {
			newestOf = append(newestOf, c.Name)
			continue
		}
		for _, csv := range csvsOf(c) {
			if by := skippedBy(c, csv); csv != from.name && by != "" && follows(c.Bundles[csv], from) != "" {
				return fmt.Sprintf("%s cannot leave channel %s: %s follows it, and is skipped by %s, which does not follow it",
					name, text.Name(c.Name), text.Name(csv), text.Name(by))
			}
		}
	}
	if len(newestOf) > 0 {
		return name + " is the newest of channel " + text.Names(newestOf, maxNamed)
	}
	why := name + " cannot leave: no version of " + inChannel(channel) +
		" replaces or skips it, or has a skipRange with its version"
	if from.version == nil {
		why += ", which is not known"
	}
	return why
}

// skippedBy returns the first version of a channel that skips another one, "" for none.
func skippedBy(c *model.Channel, csv string) string {
	for _, by := range csvsOf(c) {
		if slices.Contains(c.Bundles[by].Skips, csv) {
			return by
		}
	}
	return ""
}

// catalogPackage is a package as a catalog serves it.
type catalogPackage struct {
	*catalog.Package
	// channels are in the order in which OLM tries them: the default channel first, then by name.
	channels []*model.Channel
}

// current is the deprecation of what is not deprecated.
var current = &model.Deprecation{}

// newPackage returns a package of a catalog.
func newPackage(p *model.Package) *catalogPackage {
	o := &catalogPackage{Package: &catalog.Package{Name: p.Name, DefaultChannel: p.DefaultChannel.Name,
		Deprecation: cmp.Or(p.Deprecation, current).Message}}
	names := slices.Sorted(maps.Keys(p.Channels))
	if i := slices.Index(names, o.DefaultChannel); i > 0 {
		names = slices.Insert(slices.Delete(names, i, i+1), 0, o.DefaultChannel)
	}
	for _, name := range names {
		c := p.Channels[name]
		o.channels = append(o.channels, c)
		channel := catalog.Channel{Name: name, Deprecation: cmp.Or(c.Deprecation, current).Message}
		for _, csv := range csvsOf(c) {
			b := c.Bundles[csv]
			channel.Entries = append(channel.Entries,
				catalog.Entry{Name: csv, Version: b.Version.String(), Deprecation: cmp.Or(b.Deprecation, current).Message})
		}
		o.Channels = append(o.Channels, channel)
	}
	return o
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
		var metadata property.CSVMetadata
		var version any
		switch { // what is not JSON counts as unset, as for OLM
		case p.Type == property.TypeCSVMetadata && json.Unmarshal(p.Value, &metadata) == nil:
			kubernetes = cmp.Or(kubernetes, metadata.MinKubeVersion)
		case p.Type == "olm.maxOpenShiftVersion" && json.Unmarshal(p.Value, &version) == nil:
			openShift = fmt.Sprint(version)
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
