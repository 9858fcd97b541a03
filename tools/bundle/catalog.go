package bundle

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	"github.com/operator-framework/operator-registry/alpha/declcfg"
	"github.com/operator-framework/operator-registry/alpha/property"
	"sigs.k8s.io/yaml"
)

// Catalog returns a file-based catalog, in YAML, with bundles whose images are those of the same index. It is an error
// if it is not valid.
func Catalog(bundles []*Bundle, images []string) ([]byte, error) {
	config := declcfg.DeclarativeConfig{
		Packages: []declcfg.Package{{
			Schema: declcfg.SchemaPackage, Name: Package, DefaultChannel: Channel,
			Icon: &declcfg.Icon{Data: icon, MediaType: "image/svg+xml"}, Description: description,
		}},
		Channels: []declcfg.Channel{{Schema: declcfg.SchemaChannel, Package: Package, Name: Channel}},
	}
	for i, b := range bundles {
		entry := declcfg.ChannelEntry{Name: Name(b.Version)}
		if b.Replaces != "" {
			entry.Replaces = Name(b.Replaces)
		}
		config.Channels[0].Entries = append(config.Channels[0].Entries, entry)
		blob, err := b.blob(images[i])
		if err != nil {
			return nil, fmt.Errorf("bundle %s: %w", Name(b.Version), err)
		}
		config.Bundles = append(config.Bundles, blob)
	}
	if _, err := declcfg.ConvertToModel(config); err != nil {
		return nil, fmt.Errorf("make the catalog: %w", err)
	}
	var text bytes.Buffer
	if err := declcfg.WriteYAML(config, &text); err != nil {
		return nil, err
	}
	return text.Bytes(), nil
}

// ClusterServiceVersion returns that of the bundle.
func (b *Bundle) ClusterServiceVersion() (operatorsv1alpha1.ClusterServiceVersion, error) {
	var csv operatorsv1alpha1.ClusterServiceVersion
	err := yaml.UnmarshalStrict(b.Manifests[Package+".clusterserviceversion.yaml"], &csv)
	return csv, err
}

func (b *Bundle) blob(image string) (declcfg.Bundle, error) {
	csv, err := b.ClusterServiceVersion()
	if err != nil {
		return declcfg.Bundle{}, err
	}
	related := []declcfg.RelatedImage{{Image: image}}
	for _, r := range csv.Spec.RelatedImages {
		related = append(related, declcfg.RelatedImage{Name: r.Name, Image: r.Image})
	}
	return declcfg.Bundle{
		Schema: declcfg.SchemaBundle, Package: Package, Name: Name(b.Version), Image: image, RelatedImages: related,
		Properties: []property.Property{property.MustBuildPackage(Package, b.Version),
			property.MustBuildCSVMetadata(csv)},
	}, nil
}

// Files returns the names of the manifests, sorted.
func (b *Bundle) Files() []string { return slices.Sorted(maps.Keys(b.Manifests)) }
