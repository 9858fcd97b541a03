package diff

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/operator-framework/operator-registry/alpha/declcfg"
	"github.com/operator-framework/operator-registry/alpha/property"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/internal/yamlsize"
	"github.com/opgate/opgate/rules/change"
)

// compareBundles compares two bundles of one package; before is nil for a first installation.
func compareBundles(before, after *declcfg.Bundle) (*result, error) {
	is, err := ContentsOf(after)
	if err != nil {
		return nil, err
	}
	was, from := change.ReadContents("", "", nil), ""
	if before != nil {
		if before.Package != after.Package {
			return nil, fmt.Errorf("%s is of package %s, and %s is of package %s: no version replaces one of another package",
				text.Name(before.Name), text.Name(before.Package), text.Name(after.Name), text.Name(after.Package))
		}
		if was, err = ContentsOf(before); err != nil {
			return nil, err
		}
		from = before.Name
	}
	r := &result{Set: change.Compare(was, is)}
	r.CSV, r.Package, r.From = after.Name, after.Package, from
	return r, nil
}

// ContentsOf returns what is compared of a bundle: the manifests and the properties that a catalog has of it.
func ContentsOf(b *declcfg.Bundle) (*change.Contents, error) {
	var objects []json.RawMessage
	kept := []property.Property{}
	for i, p := range b.Properties {
		switch p.Type {
		case property.TypeBundleObject:
			raw, err := manifestOf(p.Value)
			if err != nil {
				return nil, fmt.Errorf("%s cannot be compared: property %d: %w", text.Name(b.Name), i, err)
			}
			objects = append(objects, raw)
		case property.TypeCSVMetadata: // it is made of the manifests
		default:
			kept = append(kept, p)
		}
	}
	if len(objects) == 0 {
		return nil, fmt.Errorf("the catalog has no manifests (olm.bundle.object) of %s: compare its image, %s, as a directory, with --bundle",
			text.Name(b.Name), text.Escape(b.Image))
	}
	properties, err := json.Marshal(map[string]any{"properties": kept})
	if err != nil {
		return nil, err
	}
	c := change.ReadContents(b.Name, "", objects)
	c.Resolve(string(properties), "")
	return c, nil
}

// manifestOf returns the JSON of a manifest in a property olm.bundle.object.
func manifestOf(value json.RawMessage) (json.RawMessage, error) {
	var object property.BundleObject
	if err := json.Unmarshal(value, &object); err != nil {
		return nil, err
	}
	if err := yamlsize.CheckAliases(object.Data, maxBundle); errors.Is(err, yamlsize.ErrTooLarge) {
		return nil, err
	}
	return yaml.YAMLToJSON(object.Data)
}
