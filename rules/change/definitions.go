package change

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	kjson "sigs.k8s.io/json"

	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
)

// definition is what is read of a CustomResourceDefinition. Schemas are decoded only if they differ.
type definition struct {
	name   string
	fields fields // that nothing else compares
	Spec   struct {
		Group string `json:"group"`
		Names struct {
			Kind   string `json:"kind"`
			Plural string `json:"plural"`
		} `json:"names"`
		Scope      string `json:"scope"`
		Conversion struct {
			Strategy string `json:"strategy"`
			Webhook  struct {
				ClientConfig admissionv1.WebhookClientConfig `json:"clientConfig"`
			} `json:"webhook"`
		} `json:"conversion"`
		PreserveUnknownFields bool                `json:"preserveUnknownFields"`
		Versions              []definitionVersion `json:"versions"`
	} `json:"spec"`
}

type definitionVersion struct {
	Name         string            `json:"name"`
	Served       bool              `json:"served"`
	Schema       json.RawMessage   `json:"schema"`
	digest       [sha256.Size]byte // of the schema
	Subresources struct {
		Status *struct{} `json:"status"`
		Scale  *struct{} `json:"scale"`
	} `json:"subresources"`
}

// isDefinition reports whether an object is a CustomResourceDefinition.
func (h *header) isDefinition() bool {
	return h.is(apiextensionsv1.GroupName, "CustomResourceDefinition")
}

// readDefinitions reads the CustomResourceDefinitions of a bundle.
func (c *Contents) readDefinitions() error {
	c.definitions = map[string]*definition{}
	for i := range c.objects {
		o := &c.objects[i]
		if !o.isDefinition() {
			continue
		}
		if o.APIVersion != apiextensionsv1.SchemeGroupVersion.String() {
			return fmt.Errorf("%s is of %s, want %s", o, text.Name(o.APIVersion), apiextensionsv1.SchemeGroupVersion)
		}
		d := &definition{name: o.Metadata.Name, fields: fields{}}
		if err := cmp.Or(kjson.UnmarshalCaseSensitivePreserveInts(o.raw, d),
			d.fields.readLazily("crd", o.raw)); err != nil {
			return fmt.Errorf("%s cannot be read: %w", o, err)
		}
		if n := len(d.Spec.Versions); n > maxVersions {
			return fmt.Errorf("%s has %d versions, at most %d are read", o, n, maxVersions)
		}
		for j := range d.Spec.Versions {
			v := &d.Spec.Versions[j]
			v.digest = olm.ContentsDigest(v.Schema)
		}
		c.definitions[d.name] = d
	}
	return nil
}

// setConversion sets the strategies that the API server stores: OLM writes the webhooks of a ClusterServiceVersion into
// its definitions.
func (c *Contents) setConversion() {
	converts := c.converts()
	for name, d := range c.definitions {
		if converts.Has(name) {
			d.Spec.Conversion.Strategy = string(apiextensionsv1.WebhookConverter)
			d.Spec.Conversion.Webhook.ClientConfig = admissionv1.WebhookClientConfig{} // OLM writes its own Service
		}
		if d.Spec.Conversion.Strategy == "" { // the default
			d.Spec.Conversion.Strategy = string(apiextensionsv1.NoneConverter)
		}
	}
}

// version returns a version by name; nil if there is none.
func (d *definition) version(name string) *definitionVersion {
	i := slices.IndexFunc(d.Spec.Versions, func(v definitionVersion) bool { return v.Name == name })
	if i < 0 {
		return nil
	}
	return &d.Spec.Versions[i]
}

// versionNames returns the names of the versions that are served.
func (d *definition) versionNames() []string {
	var names []string
	for i := range d.Spec.Versions {
		if d.Spec.Versions[i].Served {
			names = append(names, d.Spec.Versions[i].Name)
		}
	}
	return sorted(names)
}

func compareDefinitions(s *Set, from, to *Contents) error {
	before, after, left := from.definitions, to.definitions, newBudget()
	for _, name := range sortedKeys(after) {
		was, is := before[name], after[name]
		if was == nil {
			s.addDefinition(is)
			continue
		}
		c := definitionComparison{set: s, left: left, from: was, to: is}
		if err := c.compare(); err != nil {
			return fmt.Errorf("CustomResourceDefinition %s cannot be compared: %w", text.Name(name), err)
		}
	}
	return nil
}

// addDefinition adds a CustomResourceDefinition that is not stored.
func (s *Set) addDefinition(d *definition) {
	s.add(Definitions, Notable, "adds %s (kind %s, %s, versions %s)", text.Name(d.name), text.Name(d.Spec.Names.Kind),
		text.Name(d.Spec.Scope), text.Names(d.versionNames(), maxListed))
	if by := d.converter(); by != "" {
		s.add(Webhooks, Risky, "conversion of %s by %s", text.Name(d.name), by)
	}
}

// converter returns what converts objects, if it is not a webhook of the ClusterServiceVersion.
func (d *definition) converter() string {
	return target(&d.Spec.Conversion.Webhook.ClientConfig)
}

// definitionComparison compares one CustomResourceDefinition with what is stored.
type definitionComparison struct {
	set      *Set
	left     *budget
	from, to *definition
}

func (c *definitionComparison) broken(format string, args ...any) {
	c.set.add(BreakingCRDs, Notable, "%s: %s", text.Name(c.to.name), fmt.Sprintf(format, args...))
}

func (c *definitionComparison) compare() error {
	for _, change := range []struct{ what, from, to string }{
		{"scope", c.from.Spec.Scope, c.to.Spec.Scope},
		{"group", c.from.Spec.Group, c.to.Spec.Group},
		{"kind", c.from.Spec.Names.Kind, c.to.Spec.Names.Kind},
		{"plural", c.from.Spec.Names.Plural, c.to.Spec.Names.Plural},
		{"conversion", c.from.Spec.Conversion.Strategy, c.to.Spec.Conversion.Strategy},
		{"preserveUnknownFields", fmt.Sprint(c.from.Spec.PreserveUnknownFields),
			fmt.Sprint(c.to.Spec.PreserveUnknownFields)},
	} {
		if change.from != change.to {
			c.broken("%s changed: %s -> %s", change.what, text.Name(change.from), text.Name(change.to))
		}
	}
	if by := c.to.converter(); by != "" && by != c.from.converter() {
		c.set.add(Webhooks, Risky, "conversion of %s by %s", text.Name(c.to.name), by)
	}
	for _, path := range c.to.fields.changed(c.from.fields) {
		c.broken("%s", c.to.fields.describe(path, c.from.fields))
	}
	for i := range c.from.Spec.Versions {
		was := &c.from.Spec.Versions[i]
		is := c.to.version(was.Name)
		switch {
		case is == nil:
			c.broken("version %s is removed", text.Name(was.Name))
		case was.Served && !is.Served:
			c.broken("version %s is no longer served", text.Name(was.Name))
		default:
			if err := c.compareVersion(was, is); err != nil {
				return err
			}
		}
	}
	for i := range c.to.Spec.Versions {
		if v := &c.to.Spec.Versions[i]; c.from.version(v.Name) == nil {
			c.set.add(Definitions, Notable, "adds version %s of %s", text.Name(v.Name), text.Name(c.to.name))
		}
	}
	return c.compareServed()
}

// compareVersion compares a version with itself before.
func (c *definitionComparison) compareVersion(was, is *definitionVersion) error {
	for _, sub := range []struct {
		name    string
		was, is bool
	}{
		{"status", was.Subresources.Status != nil, is.Subresources.Status != nil},
		{"scale", was.Subresources.Scale != nil, is.Subresources.Scale != nil},
	} {
		if sub.was != sub.is {
			c.broken("%s: subresource %s %s", text.Name(is.Name), sub.name,
				map[bool]string{true: "added", false: "removed"}[sub.is])
		}
	}
	broken, wider, err := c.left.compareSchemas(was, is)
	if err != nil {
		return fmt.Errorf("version %s: %w", text.Name(is.Name), err)
	}
	for _, l := range broken {
		c.broken("%s: %s", text.Name(is.Name), l)
	}
	for _, l := range wider {
		c.set.add(Definitions, Notable, "%s: %s: %s", text.Name(c.to.name), text.Name(is.Name), l)
	}
	return nil
}

// compareServed compares the served versions with each other if no webhook converts between them: a field that one of
// them lacks is lost. What was so before is no difference.
func (c *definitionComparison) compareServed() error {
	if c.to.Spec.Conversion.Strategy == string(apiextensionsv1.WebhookConverter) {
		return nil
	}
	served := c.to.versionNames()
	if len(served) > maxServed {
		if len(served) != len(c.from.versionNames()) {
			c.broken("%d versions are served, more than the %d that are compared with each other", len(served),
				maxServed)
		}
		return nil
	}
	for i, older := range served {
		for _, newer := range served[i+1:] {
			if err := c.comparePair(older, newer); err != nil {
				return fmt.Errorf("versions %s and %s: %w", text.Name(older), text.Name(newer), err)
			}
		}
	}
	return nil
}

func (c *definitionComparison) comparePair(older, newer string) error {
	a, b := c.to.version(older), c.to.version(newer)
	wasA, wasB := c.from.version(older), c.from.version(newer)
	paired := wasA != nil && wasB != nil && wasA.Served && wasB.Served
	if paired && wasA.digest == a.digest && wasB.digest == b.digest {
		return nil
	}
	lines, _, err := c.left.compareSchemas(a, b)
	if err != nil || len(lines) == 0 {
		return err
	}
	var known []string
	if paired {
		if known, _, err = c.left.compareSchemas(wasA, wasB); err != nil {
			return err
		}
	}
	for _, l := range lines {
		if !slices.Contains(known, l) {
			c.broken("%s -> %s: %s", text.Name(older), text.Name(newer), l)
		}
	}
	return nil
}
