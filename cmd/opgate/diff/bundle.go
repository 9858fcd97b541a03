package diff

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	"github.com/operator-framework/operator-registry/alpha/property"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/internal/yamlsize"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/change"
)

// What property olm.csv.metadata does not have of a bundle, and what else is not there without it.
var (
	withoutManifests = []part{"permissions", "webhooks", "CustomResourceDefinitions", "pods", "other objects"}
	withoutMetadata  = append(withoutManifests[:len(withoutManifests):len(withoutManifests)], "install modes",
		"minKubeVersion", "required APIs")
)

// bundleContents is what a catalog has of a bundle.
type bundleContents struct {
	name       string
	properties string
	related    []v1alpha1.RelatedImage
	// objects are the manifests of properties olm.bundle.object; nil if there are none.
	objects []json.RawMessage
	// csv is the ClusterServiceVersion among them, or what olm.csv.metadata has of it; nil if the catalog has neither.
	csv *v1alpha1.ClusterServiceVersion
	// fault is why they cannot be read.
	fault string
}

// read reads the properties of a bundle; of nil, a first installation, nothing.
func (b *bundle) read() *bundleContents {
	if b == nil {
		return nil
	}
	m := &bundleContents{name: b.Name}
	for _, image := range b.RelatedImages {
		m.related = append(m.related, v1alpha1.RelatedImage{Name: image.Name, Image: image.Image})
	}
	if err := m.readProperties(b.Properties); err != nil {
		m.fault = text.Name(b.Name) + " cannot be read: " + err.Error()
	}
	return m
}

func (m *bundleContents) readProperties(properties []property.Property) error {
	kept := []property.Property{}
	for i, p := range properties {
		switch p.Type {
		case property.TypeBundleObject:
			var object property.BundleObject
			if err := json.Unmarshal(p.Value, &object); err != nil {
				return fmt.Errorf("property %d: %w", i, err)
			}
			if err := yamlsize.CheckAliases(object.Data, maxBundle); errors.Is(err, yamlsize.ErrTooLarge) {
				return fmt.Errorf("property %d: %w", i, err)
			}
			raw, err := yaml.YAMLToJSON(object.Data)
			if err != nil {
				return fmt.Errorf("property %d: %w", i, err)
			}
			if err := m.add(raw); err != nil {
				return fmt.Errorf("property %d: %w", i, err)
			}
		case property.TypeCSVMetadata:
			var metadata property.CSVMetadata
			if err := json.Unmarshal(p.Value, &metadata); err != nil {
				return fmt.Errorf("property %d: %w", i, err)
			}
			if m.csv == nil {
				m.csv = described(&metadata)
			}
		default:
			kept = append(kept, p)
		}
	}
	wrapped, err := json.Marshal(map[string]any{"properties": kept})
	m.properties = string(wrapped)
	return err
}

// add adds a manifest of the bundle.
func (m *bundleContents) add(raw json.RawMessage) error {
	m.objects = append(m.objects, raw)
	var head struct {
		Kind string `json:"kind"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &head); err != nil ||
		head.Kind != olm.KindClusterServiceVersion {
		return err
	}
	m.csv = &v1alpha1.ClusterServiceVersion{}
	return json.Unmarshal(raw, m.csv)
}

// described returns what olm.csv.metadata has of a ClusterServiceVersion that is compared.
func described(metadata *property.CSVMetadata) *v1alpha1.ClusterServiceVersion {
	csv := &v1alpha1.ClusterServiceVersion{}
	csv.Spec.InstallModes, csv.Spec.MinKubeVersion = metadata.InstallModes, metadata.MinKubeVersion
	csv.Spec.CustomResourceDefinitions.Required = metadata.CustomResourceDefinitions.Required
	csv.Spec.APIServiceDefinitions = metadata.APIServiceDefinitions
	return csv
}

// gap is what cannot be compared, and why.
type gap struct {
	parts []part
	why   string
	// metadata is set if olm.csv.metadata is missing as well.
	metadata bool
}

// without returns what one of two bundles has not; nil if both have all manifests.
func without(both ...*bundleContents) *gap {
	var missing *gap
	for _, m := range both {
		switch {
		case m == nil || m.fault != "" || len(m.objects) > 0:
		case m.csv == nil:
			return &gap{withoutMetadata,
				"the catalog has neither manifests (olm.bundle.object) nor olm.csv.metadata of " + text.Name(m.name),
				true}
		case missing == nil:
			missing = &gap{parts: withoutManifests,
				why: "the catalog has olm.csv.metadata of " + text.Name(m.name) +
					", in which they are not, and no manifests (olm.bundle.object)"}
		}
	}
	return missing
}

// partial leaves only what can be compared.
func (m *bundleContents) partial(missing *gap) {
	if m == nil {
		return
	}
	csv := &v1alpha1.ClusterServiceVersion{}
	if m.csv != nil && !missing.metadata {
		spec := &m.csv.Spec
		csv.Spec.InstallModes, csv.Spec.MinKubeVersion = spec.InstallModes, spec.MinKubeVersion
		csv.Spec.CustomResourceDefinitions.Required = spec.CustomResourceDefinitions.Required
		csv.Spec.APIServiceDefinitions = spec.APIServiceDefinitions
	}
	csv.APIVersion, csv.Kind, csv.Name = v1alpha1.ClusterServiceVersionAPIVersion, olm.KindClusterServiceVersion, m.name
	csv.Spec.RelatedImages = m.related
	raw, err := json.Marshal(csv)
	if err != nil {
		m.fault = text.Name(m.name) + " cannot be read: " + err.Error()
		return
	}
	m.objects = []json.RawMessage{raw}
}

// contents returns what is compared.
func (m *bundleContents) contents() *change.Contents {
	if m == nil {
		return change.ReadContents("", "", nil)
	}
	if m.fault != "" {
		return &change.Contents{CSV: m.name, Fault: m.fault}
	}
	c := change.ReadContents(m.name, "", m.objects)
	c.Resolve(m.properties, "")
	return c
}
