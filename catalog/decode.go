package catalog

import (
	"cmp"

	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/olm"
)

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
