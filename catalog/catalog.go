// Package catalog holds the types of the contents of catalogs, and decodes them from PackageManifests. It is pure, so
// that rules can judge by its types; package cache fetches them.
package catalog

import (
	"cmp"
	"slices"

	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/olm"
)

// Package is the content of a PackageManifest: a package in one catalog. PackageManifests lag behind the catalogs,
// omit deprecated versions, and describe little but the newest version of a channel.
type Package struct {
	Name           string
	Catalog        olm.Catalog
	DefaultChannel string
	// Deprecation is the catalog's message; "" if the package is not deprecated.
	Deprecation string
	Channels    []Channel
}

// Channel is a channel of a Package.
type Channel struct {
	Name string
	// Deprecation is the catalog's message; "" if the channel is not deprecated.
	Deprecation string
	// SuggestedNamespace is annotation operatorframework.io/suggested-namespace of the newest version.
	SuggestedNamespace string
	// InstallModes are those that the newest version supports; nil if it lists none.
	InstallModes map[string]bool
	// MinKubeVersion is the oldest Kubernetes version that the newest version runs on; "" if it requires none.
	MinKubeVersion string
	// Entries are the versions, newest first.
	Entries []Entry
}

// Entry is a version in a Channel.
type Entry struct {
	// Name is the name of the ClusterServiceVersion.
	Name string
	// Version is "" if the catalog does not state it.
	Version string
	// Deprecation is the catalog's message; "" if the version is not deprecated.
	Deprecation string
}

// Deprecations returns what is deprecated of a version that a plan takes from channels; an empty name is the default
// channel. Without channels, as for a dependency that has no Subscription yet, a channel is deprecated only if all that
// have the version are. Known is false if the package is nil, or one of the channels does not have the version (yet).
func (p *Package) Deprecations(csv string, channels []string) (d olm.Deprecations, known bool) {
	if p == nil {
		return d, false
	}
	d.Package = p.Deprecation
	if len(channels) == 0 {
		return p.deprecationsAnywhere(csv, d)
	}
	for _, name := range channels {
		channel := p.Channel(name)
		if channel == nil {
			return olm.Deprecations{}, false
		}
		entry, ok := channel.Entry(csv)
		if !ok {
			return olm.Deprecations{}, false
		}
		d.Channel, d.Version = cmp.Or(d.Channel, channel.Deprecation), cmp.Or(d.Version, entry.Deprecation)
	}
	return d, true
}

func (p *Package) deprecationsAnywhere(csv string, d olm.Deprecations) (_ olm.Deprecations, known bool) {
	recommended := false
	for i := range p.Channels {
		channel := &p.Channels[i]
		entry, ok := channel.Entry(csv)
		if !ok {
			continue
		}
		known, recommended = true, recommended || channel.Deprecation == ""
		d.Channel, d.Version = cmp.Or(d.Channel, channel.Deprecation), cmp.Or(d.Version, entry.Deprecation)
	}
	if recommended {
		d.Channel = ""
	}
	return d, known
}

// Has reports whether a channel has a version.
func (p *Package) Has(csv string) bool {
	return slices.ContainsFunc(p.Channels, func(c Channel) bool {
		return c.Has(csv)
	})
}

// Channel returns the channel with a name, or the default channel if the name is empty. It is nil if the package is
// nil or has no such channel.
func (p *Package) Channel(name string) *Channel {
	if p == nil {
		return nil
	}
	if name == "" {
		name = p.DefaultChannel
	}
	i := slices.IndexFunc(p.Channels, func(c Channel) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &p.Channels[i]
}

// Entry returns the version of a ClusterServiceVersion, and reports whether the channel has it.
func (c *Channel) Entry(csv string) (Entry, bool) {
	i := slices.IndexFunc(c.Entries, func(e Entry) bool { return e.Name == csv })
	if i < 0 {
		return Entry{}, false
	}
	return c.Entries[i], true
}

// Has reports whether the channel has a version.
func (c *Channel) Has(csv string) bool {
	_, has := c.Entry(csv)
	return has
}

// MaxName is the longest name of an object in Kubernetes.
const MaxName = 253

// Limits of one decoded package. Catalogs in use stay far below.
const (
	maxChannels = 500
	maxVersions = 10_000
	maxText     = 4 << 10
)

// Decode decodes a PackageManifest. Fields that are missing, of another type or too long are ignored. It returns nil if
// the object does not name a package and its catalog.
func Decode(object map[string]any) *Package {
	status := child(object, "status")
	p := &Package{
		Name: cmp.Or(name(status, "packageName"), name(child(object, "metadata"), "name")),
		Catalog: olm.Catalog{Namespace: name(status, "catalogSourceNamespace"),
			Name: name(status, "catalogSource")},
		DefaultChannel: name(status, "defaultChannel"),
		Deprecation:    deprecation(status),
	}
	if p.Name == "" || p.Catalog.Name == "" || p.Catalog.Namespace == "" {
		return nil
	}
	versions := 0
	for _, channel := range objects(status, "channels", maxChannels) {
		c := Channel{Name: name(channel, "name"), Deprecation: deprecation(channel)}
		if c.Name == "" {
			continue
		}
		head := child(channel, "currentCSVDesc")
		c.MinKubeVersion = name(head, "minKubeVersion")
		c.SuggestedNamespace = name(child(head, "annotations"), metakey.SuggestedNamespace)
		for _, mode := range objects(head, "installModes", 16) {
			kind := name(mode, "type")
			if kind == "" {
				continue
			}
			if c.InstallModes == nil {
				c.InstallModes = map[string]bool{}
			}
			if supported, _ := mode["supported"].(bool); supported {
				c.InstallModes[kind] = true
			}
		}
		for _, entry := range objects(channel, "entries", maxVersions-versions) {
			e := Entry{Name: name(entry, "name"), Version: name(entry, "version"), Deprecation: deprecation(entry)}
			if e.Name == "" {
				continue
			}
			c.Entries = append(c.Entries, e)
			versions++
		}
		p.Channels = append(p.Channels, c)
	}
	return p
}

func child(from map[string]any, field string) map[string]any {
	value, _ := from[field].(map[string]any) // a nil map can be read
	return value
}

func objects(from map[string]any, field string, limit int) []map[string]any {
	list, _ := from[field].([]any)
	if len(list) > limit {
		list = list[:limit]
	}
	found := make([]map[string]any, 0, len(list))
	for _, item := range list {
		if object, ok := item.(map[string]any); ok {
			found = append(found, object)
		}
	}
	return found
}

// name returns a string that identifies an object, or "" if it is too long: truncated it would identify another object.
func name(from map[string]any, field string) string {
	value, _ := from[field].(string)
	if len(value) > MaxName {
		return ""
	}
	return value
}

// noMessage is the message of a deprecation without one.
const noMessage = "the catalog gives no reason"

func deprecation(from map[string]any) string {
	stated, is := from["deprecation"].(map[string]any)
	if !is {
		return ""
	}
	text, _ := stated["message"].(string)
	if text == "" {
		return noMessage
	}
	for i := range text { // at the start of a character, so that none is split
		if i >= maxText {
			return text[:i]
		}
	}
	return text
}
