package catalog

import (
	"cmp"

	"github.com/opgate/opgate/controller/operatorpolicy/compliance"
	"github.com/opgate/opgate/olm"
)

// What is kept of one package at most. Catalogs in use stay far below.
const (
	maxChannels = 500
	maxVersions = 10_000
	maxName     = 253
	maxText     = 4 << 10
)

// suggestedNamespace is where an operator's author wants it to be installed.
const suggestedNamespace = "operatorframework.io/suggested-namespace"

// decode reads a PackageManifest. What is missing, of another type or too long is passed over; nil is for what
// does not name a package and its catalog.
func decode(object map[string]any) *compliance.Package {
	status := child(object, "status")
	p := &compliance.Package{
		Name:           cmp.Or(name(status, "packageName"), name(child(object, "metadata"), "name")),
		Catalog:        olm.Catalog{Namespace: name(status, "catalogSourceNamespace"), Name: name(status, "catalogSource")},
		DefaultChannel: name(status, "defaultChannel"),
		Deprecation:    deprecation(status),
	}
	if p.Name == "" || p.Catalog.Name == "" || p.Catalog.Namespace == "" {
		return nil
	}
	versions := 0
	for _, channel := range objects(status, "channels", maxChannels) {
		c := compliance.Channel{Name: name(channel, "name"), Deprecation: deprecation(channel)}
		if c.Name == "" {
			continue
		}
		head := child(channel, "currentCSVDesc")
		c.MinKubeVersion = name(head, "minKubeVersion")
		c.SuggestedNamespace = name(child(head, "annotations"), suggestedNamespace)
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
			e := compliance.Entry{Name: name(entry, "name"), Version: name(entry, "version"), Deprecation: deprecation(entry)}
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
	value, _ := from[field].(map[string]any) // reading a nil map is fine
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

// name reads a string that identifies something: cut short it would identify something else.
func name(from map[string]any, field string) string {
	value, _ := from[field].(string)
	if len(value) > maxName {
		return ""
	}
	return value
}

func deprecation(from map[string]any) string {
	text, _ := child(from, "deprecation")["message"].(string)
	for i := range text { // at the start of a character, so that none is cut in two
		if i >= maxText {
			return text[:i]
		}
	}
	return text
}
