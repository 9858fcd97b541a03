package olm

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// Blobs of a file-based catalog.
type (
	packageBlob struct {
		Schema         string `json:"schema"`
		Name           string `json:"name"`
		DefaultChannel string `json:"defaultChannel"`
	}
	channelBlob struct {
		Schema  string         `json:"schema"`
		Package string         `json:"package"`
		Name    string         `json:"name"`
		Entries []channelEntry `json:"entries"`
	}
	channelEntry struct {
		Name      string   `json:"name"`
		Replaces  string   `json:"replaces,omitempty"`
		Skips     []string `json:"skips,omitempty"`
		SkipRange string   `json:"skipRange,omitempty"`
	}
	bundleBlob struct {
		Schema     string     `json:"schema"`
		Package    string     `json:"package"`
		Name       string     `json:"name"`
		Image      string     `json:"image"` // "" if its content is in the properties
		Properties []property `json:"properties"`
	}
	property struct {
		Type  string `json:"type"`
		Value any    `json:"value"`
	}
	deprecationsBlob struct {
		Schema  string             `json:"schema"`
		Package string             `json:"package"`
		Entries []deprecationEntry `json:"entries"`
	}
	deprecationEntry struct {
		Reference reference `json:"reference"`
		Message   string    `json:"message"`
	}
	reference struct {
		Schema string `json:"schema"`
		Name   string `json:"name,omitempty"`
	}
)

// Schemas of blobs.
const (
	packageSchema      = "olm.package"
	channelSchema      = "olm.channel"
	bundleSchema       = "olm.bundle"
	deprecationsSchema = "olm.deprecations"
)

// writeCatalog writes the catalog that "opm serve" reads to dir, and returns the digest of an image of it, which is that
// of its text here.
func writeCatalog(dir, catalog string, packages []Package) (digest string, err error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	for _, p := range packages {
		for _, blob := range p.blobs(catalog) {
			if err := encoder.Encode(blob); err != nil {
				return "", fmt.Errorf("write catalog %s: package %s: %w", catalog, p.Name, err)
			}
		}
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", fmt.Errorf("write catalog %s: %w", catalog, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "catalog.json"), text.Bytes(), 0o600); err != nil {
		return "", fmt.Errorf("write catalog %s: %w", catalog, err)
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256(text.Bytes())), nil
}

// blobs returns the blobs of a package.
func (p Package) blobs(catalog string) []any {
	blobs := []any{packageBlob{Schema: packageSchema, Name: p.Name, DefaultChannel: p.defaultChannel()}}
	channels := p.channels()
	for _, name := range slices.Sorted(maps.Keys(channels)) {
		channel := channelBlob{Schema: channelSchema, Package: p.Name, Name: name}
		previous := ""
		for _, version := range channels[name] {
			entry := channelEntry{Name: p.csvName(version), Replaces: previous}
			if edges := p.Edges[name]; edges != nil {
				entry = p.entry(version, edges[version])
			}
			channel.Entries = append(channel.Entries, entry)
			previous = p.csvName(version)
		}
		blobs = append(blobs, channel)
	}
	for _, version := range p.Versions {
		blobs = append(blobs, p.bundle(catalog, version))
	}
	if deprecated := p.deprecations(); len(deprecated.Entries) > 0 {
		blobs = append(blobs, deprecated)
	}
	return blobs
}

// entry is a version of a channel with edges.
func (p Package) entry(version string, edges Edges) channelEntry {
	entry := channelEntry{Name: p.csvName(version), SkipRange: edges.SkipRange}
	if edges.Replaces != "" {
		entry.Replaces = p.csvName(edges.Replaces)
	}
	for _, skipped := range edges.Skips {
		entry.Skips = append(entry.Skips, p.csvName(skipped))
	}
	return entry
}

func (p Package) bundle(catalog, version string) bundleBlob {
	bundle := bundleBlob{
		Schema: bundleSchema, Package: p.Name, Name: p.csvName(version),
		Properties: []property{{"olm.package", map[string]string{"packageName": p.Name, "version": version}}},
	}
	if p.Requires != "" {
		bundle.Properties = append(bundle.Properties, property{"olm.package.required", map[string]string{
			"packageName": p.Requires, "versionRange": ">=0.0.1",
		}})
	}
	released := p.release(version)
	if p.Owns != "" {
		for _, apiVersion := range released.apiVersions() {
			bundle.Properties = append(bundle.Properties, property{"olm.gvk", map[string]string{
				"group": p.group(), "version": apiVersion, "kind": p.Owns,
			}})
		}
	}
	for _, more := range p.Properties {
		bundle.Properties = append(bundle.Properties, property(more))
	}
	if p.Images {
		bundle.Image = p.bundleImage(catalog, version)
		bundle.Properties = append(bundle.Properties, released.metadata(version))
		return bundle
	}
	manifests := p.manifests(version)
	for _, name := range slices.Sorted(maps.Keys(manifests)) {
		// Bytes are base64 in JSON, as the schema wants it.
		bundle.Properties = append(bundle.Properties,
			property{"olm.bundle.object", map[string][]byte{"data": manifests[name]}})
	}
	return bundle
}

// metadata is the metadata of an image in a catalog, so that clients need not pull the image to display it.
func (p Package) metadata(version string) property {
	csv := p.clusterServiceVersion(version)
	return property{"olm.csv.metadata", map[string]any{
		"annotations":           csv.Annotations,
		"displayName":           csv.Spec.DisplayName,
		"installModes":          csv.Spec.InstallModes,
		"crdDescriptions":       csv.Spec.CustomResourceDefinitions,
		"apiServiceDefinitions": csv.Spec.APIServiceDefinitions,
		"minKubeVersion":        csv.Spec.MinKubeVersion,
		"provider":              csv.Spec.Provider,
	}}
}

func (p Package) deprecations() deprecationsBlob {
	blob := deprecationsBlob{Schema: deprecationsSchema, Package: p.Name}
	add := func(schema, name, message string) {
		blob.Entries = append(blob.Entries, deprecationEntry{Reference: reference{Schema: schema, Name: name},
			Message: message})
	}
	if p.Deprecated.Package != "" {
		add(packageSchema, "", p.Deprecated.Package)
	}
	for _, name := range slices.Sorted(maps.Keys(p.Deprecated.Channels)) {
		add(channelSchema, name, p.Deprecated.Channels[name])
	}
	for _, version := range slices.Sorted(maps.Keys(p.Deprecated.Versions)) {
		add(bundleSchema, p.csvName(version), p.Deprecated.Versions[version])
	}
	return blob
}

// bundleImage is the image of a version. There is no such image; see images.
func (p Package) bundleImage(catalog, version string) string {
	return "registry.invalid/" + catalog + "/" + p.Name + "-bundle:v" + version
}
