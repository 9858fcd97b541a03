package olm

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/opgate/opgate/internal/apijson"
	"github.com/opgate/opgate/internal/metakey"
)

// Step is one object that a plan will write. Status is whether OLM has written it already: it skips steps that are
// Present or Created.
type Step struct {
	Resolving string       `json:"resolving"`
	Status    string       `json:"status"`
	Optional  bool         `json:"optional"`
	Resource  StepResource `json:"resource"`
}

// Steps are the steps of a plan.
type Steps []Step

// stepsAtOnce are the steps that are read into one array.
const stepsAtOnce = 64

// UnmarshalJSONFrom reads a list of steps as the API server does: what a duplicate of the list does not set stays as
// the one before it set it. It takes the memory of the list twice. A slice that grows by a quarter at a time, as for
// other lists, leaves five times of it to the garbage collector; a hostile plan has tens of thousands of steps.
func (s *Steps) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if d.PeekKind() != '[' {
		return jsonv2.UnmarshalDecode(d, (*[]Step)(s))
	}
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	var full []Steps
	var read Steps
	for before := *s; d.PeekKind() != ']'; {
		if len(read) == stepsAtOnce {
			full, read = append(full, read), make(Steps, 0, stepsAtOnce)
		}
		var step Step
		if len(before) > 0 {
			step, before = before[0], before[1:]
		}
		read = append(read, step)
		if err := jsonv2.UnmarshalDecode(d, &read[len(read)-1]); err != nil {
			return err
		}
	}
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	if len(full) > 0 {
		read = slices.Concat(append(full, read)...)
	}
	*s = read
	return nil
}

// WritesDefinition reports whether the step writes a CustomResourceDefinition.
func (s *Step) WritesDefinition() bool {
	return s.Resource.Group == "apiextensions.k8s.io" && s.Resource.Kind == "CustomResourceDefinition"
}

// WritesCSV reports whether the step writes the ClusterServiceVersion of a name.
func (s *Step) WritesCSV(name string) bool {
	return s.Resource.Kind == KindClusterServiceVersion && s.Resource.Name == name
}

// SameStep reports whether two steps write the same object in the same way. It compares the manifests as written, not
// what was read of them.
func SameStep(a, b Step) bool {
	if !a.Resource.Manifest.same(&b.Resource.Manifest) {
		return false
	}
	a.Resource.Manifest, b.Resource.Manifest = Manifest{}, Manifest{}
	return a == b
}

// StepResource is the object of a Step.
type StepResource struct {
	Group            string   `json:"group"`
	Version          string   `json:"version"`
	Kind             string   `json:"kind"`
	Name             string   `json:"name"`
	CatalogName      string   `json:"sourceName"`
	CatalogNamespace string   `json:"sourceNamespace"`
	Manifest         Manifest `json:"manifest"`
}

// Manifest is what is kept of a step's manifest, which may be hundreds of kilobytes of JSON inside a JSON string: its
// digest, to detect a change, and the bundle properties of a ClusterServiceVersion.
type Manifest struct {
	// Properties is annotation operatorframework.io/properties of the object in the manifest, and AuthorProperties
	// its annotation olm.properties.
	Properties, AuthorProperties string
	// Spec is that of a ClusterServiceVersion; nil if the manifest is not in the plan.
	Spec *CSVSpec
	// Unreadable is set if the manifest should have properties and does not decode.
	Unreadable bool

	// text is the manifest as written in the object's JSON, until Trim; digest, inline, grants and subscription are
	// what Trim read of it.
	text         *[]byte
	digest       [sha256.Size]byte
	inline       bool
	grants       *Grants
	subscription *Subscription
}

// UnmarshalJSON keeps the text, which is a part of a review's body that nothing changes. It decodes the
// manifest only if the annotation occurs, which is in ClusterServiceVersions and hardly anywhere else.
func (m *Manifest) UnmarshalJSON(raw []byte) error {
	*m = Manifest{text: &raw}
	// The second half alone is found faster, since its first byte is rare.
	if _, after, _ := strings.Cut(metakey.Properties, "/"); !bytes.Contains(raw, []byte("/"+after)) ||
		!bytes.Contains(raw, []byte(metakey.Properties)) {
		return nil
	}
	m.Unreadable = m.read(raw) != nil // it holds the plan; the rest of the object is read nevertheless
	return nil
}

// Digest returns the SHA-256 of the manifest as written in the object's JSON; zeros if there is none.
func (m *Manifest) Digest() [sha256.Size]byte {
	if m.text == nil {
		return m.digest
	}
	return sha256.Sum256(*m.text)
}

// same reports whether both manifests are written with the same bytes.
func (m *Manifest) same(o *Manifest) bool {
	if m.text != nil && o.text != nil {
		return bytes.Equal(*m.text, *o.text)
	}
	return m.Digest() == o.Digest()
}

// read reads the relevant parts of the object whose JSON is in a JSON string.
func (m *Manifest) read(raw []byte) error {
	var text string
	if err := apijson.Unmarshal(raw, &text); err != nil {
		return err
	}
	csv, err := Decode[CSV]([]byte(text))
	if err != nil {
		return err
	}
	m.Properties, m.AuthorProperties = csv.Metadata.Annotations.Properties, csv.Metadata.Annotations.AuthorProperties
	m.Spec = &csv.Spec
	return nil
}

// JSON returns the manifest of a plan that Trim has not shortened.
func (m *Manifest) JSON() (json.RawMessage, error) {
	if m.text == nil {
		return nil, nil
	}
	var text string
	if err := apijson.Unmarshal(*m.text, &text); err != nil {
		return nil, err
	}
	return json.RawMessage(text), nil
}

// Inline reports whether the plan has the object itself, in place of a reference to the ConfigMap that OLM unpacked a
// bundle image into.
func (r *StepResource) Inline() bool {
	m := &r.Manifest
	if m.Spec != nil || m.text == nil {
		return m.Spec != nil || m.inline
	}
	manifest, err := m.JSON()
	_, refers := ReadReference(manifest)
	return err != nil || !refers
}

// Subscription reads the manifest of a Subscription, which OLM generates for a dependency. It returns nil for another
// kind, and for a manifest that cannot be read.
func (r *StepResource) Subscription() *Subscription {
	if r.Kind != KindSubscription || r.Manifest.subscription != nil || r.Manifest.text == nil {
		return r.Manifest.subscription
	}
	raw, _ := r.Manifest.JSON() // nothing that can be decoded, if that fails
	if sub, err := Decode[Subscription](raw); err == nil {
		return sub
	}
	return nil
}
