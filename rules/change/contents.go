package change

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	kjson "sigs.k8s.io/json"

	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
)

// Contents are the objects that one bundle writes, or wrote.
type Contents struct {
	// CSV is the name of the ClusterServiceVersion; empty if there is none.
	CSV string
	// Package, Version and Release are those of property olm.package. What it does not have of Version and Release is
	// that of the ClusterServiceVersion.
	Package, Version, Release string
	// Fault is why the contents cannot be read; empty if they can.
	Fault string
	// Missing is why only the ClusterServiceVersion and the definitions are known of what is installed; empty if all of
	// it is.
	Missing string

	// spec is that of the ClusterServiceVersion, rawSpec its JSON as written, and labels and annotations those of the
	// object.
	spec                v1alpha1.ClusterServiceVersionSpec
	rawSpec             json.RawMessage
	labels, annotations map[string]string
	// namespace is the one that the bundle is installed in; empty if that is not known.
	namespace string
	// catalog is set by Resolve: then rawSpec is not what OLM writes.
	catalog bool
	// requires are packages and APIs of the properties.
	requires []olm.Capability
	// deprecated is set if the properties say so.
	deprecated bool
	// objects are the others, without the Subscriptions and ServiceAccounts that OLM derives, sorted by kind and name.
	objects []object
	// pods are those of the Deployments of the ClusterServiceVersion and of objects.
	pods []template
	// definitions are the CustomResourceDefinitions among them, by name.
	definitions map[string]*definition
}

// object is an object of a bundle.
type object struct {
	header
	raw json.RawMessage
}

// header is what is read of every object.
type header struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name        string            `json:"name"`
		Namespace   string            `json:"namespace"`
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
}

// group returns the API group.
func (h *header) group() string {
	group, _, found := bytes.Cut([]byte(h.APIVersion), []byte("/"))
	if !found {
		return ""
	}
	return string(group)
}

// is reports whether an object is of a kind, in any version.
func (h *header) is(group, kind string) bool { return h.Kind == kind && h.group() == group }

// String returns the kind and the name, as messages show them.
func (h *header) String() string { return text.Name(h.Kind) + " " + text.Name(h.Metadata.Name) }

// ReadContents reads the objects that one bundle writes, as JSON; Unpack converts YAML. It is total: what cannot be
// read is in Fault. csv is the name of the ClusterServiceVersion that must be among them; "" if there may be none, such
// as before a first installation. namespace is the one that it is installed in; "" if that is not known.
//
// Manifests of a plan's steps and of a ConfigMap give contents that compare as equal. The Subscriptions,
// ServiceAccounts and RBAC objects that OLM derives are ignored: they occur only in steps.
func ReadContents(csv, namespace string, manifests []json.RawMessage) *Contents {
	c := &Contents{CSV: csv, namespace: namespace}
	if err := c.read(manifests); err != nil {
		return &Contents{CSV: csv, Fault: text.Truncate(err.Error(), maxText)}
	}
	return c
}

func (c *Contents) read(manifests []json.RawMessage) error {
	if err := checkSize(manifests); err != nil {
		return err
	}
	var csvs []object
	for i, raw := range manifests {
		o := object{raw: raw}
		if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &o.header); err != nil {
			return fmt.Errorf("manifest %d cannot be read: %w", i, err)
		}
		switch {
		case o.Kind == "":
			return fmt.Errorf("manifest %d has no kind", i)
		case o.is(olm.Group, olm.KindClusterServiceVersion):
			csvs = append(csvs, o)
		case o.derivedSubscription():
		default:
			if err := o.checkCase(); err != nil {
				return err
			}
			c.objects = append(c.objects, o)
		}
	}
	if err := c.sort(); err != nil {
		return err
	}
	if err := c.readDefinitions(); err != nil {
		return err
	}
	defer c.setConversion()
	switch {
	case len(csvs) == 0 && c.CSV == "":
		return c.setPods()
	case len(csvs) == 0:
		return fmt.Errorf("ClusterServiceVersion %s is not among the manifests", text.Name(c.CSV))
	case len(csvs) > 1:
		return fmt.Errorf("there are %d ClusterServiceVersions, want one", len(csvs))
	case csvs[0].Metadata.Name != c.CSV:
		return fmt.Errorf("the ClusterServiceVersion is %s, want %s", text.Name(csvs[0].Metadata.Name),
			text.Name(c.CSV))
	}
	if err := c.readCSV(&csvs[0]); err != nil {
		return err
	}
	accounts := c.derivedAccounts()
	c.objects = slices.DeleteFunc(c.objects,
		func(o object) bool { return accounts[o.Metadata.Name] && o.derivedAccount() })
	return c.setPods()
}

// checkCase reports an object whose keys have other cases than the API has, since OLM decodes some kinds without
// regard to it.
func (o *object) checkCase() error {
	var loose header
	if err := json.Unmarshal(o.raw, &loose); err != nil {
		return fmt.Errorf("%s cannot be read: %w", o, err)
	}
	if !reflect.DeepEqual(loose, o.header) {
		return fmt.Errorf("%s defines its kind or its metadata twice, or in another case", o)
	}
	return nil
}

// derivedSubscription reports whether an object is a Subscription as OLM derives it for a dependency
// (NewSubscriptionStepResource of operator-lifecycle-manager). A bundle that brings one itself requires no more by it.
func (o *object) derivedSubscription() bool {
	if !o.is(olm.Group, olm.KindSubscription) {
		return false
	}
	var s v1alpha1.Subscription
	if json.Unmarshal(o.raw, &s) != nil || s.Spec == nil {
		return false
	}
	plain := v1alpha1.SubscriptionSpec{CatalogSource: s.Spec.CatalogSource,
		CatalogSourceNamespace: s.Spec.CatalogSourceNamespace, Package: s.Spec.Package,
		Channel: s.Spec.Channel, StartingCSV: s.Spec.StartingCSV, InstallPlanApproval: v1alpha1.ApprovalAutomatic}
	return len(s.Labels)+len(s.Annotations) == 0 && reflect.DeepEqual(*s.Spec, plain) &&
		s.Name == strings.Join([]string{plain.Package, plain.Channel, plain.CatalogSource,
			plain.CatalogSourceNamespace}, "-")
}

// derivedAccounts returns the ServiceAccounts that OLM derives from the ClusterServiceVersion.
func (c *Contents) derivedAccounts() map[string]bool {
	accounts := map[string]bool{}
	strategy := &c.spec.InstallStrategy.StrategySpec
	for _, p := range slices.Concat(strategy.Permissions, strategy.ClusterPermissions) {
		accounts[p.ServiceAccountName] = true
	}
	return accounts
}

// derivedAccount reports whether an object is a ServiceAccount with nothing but a name.
func (o *object) derivedAccount() bool {
	if !o.is("", "ServiceAccount") {
		return false
	}
	f := fields{}
	return f.readObject("/ServiceAccount", o.raw) == nil && len(f) == 0
}

// sort sorts the objects and drops duplicates. Of two different objects with one name OLM writes either, which cannot
// be compared.
func (c *Contents) sort() error {
	slices.SortFunc(c.objects, func(a, b object) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.APIVersion, b.APIVersion),
			cmp.Compare(a.Metadata.Name, b.Metadata.Name), bytes.Compare(a.raw, b.raw))
	})
	c.objects = slices.CompactFunc(c.objects, func(a, b object) bool { return bytes.Equal(a.raw, b.raw) })
	for i := 1; i < len(c.objects); i++ {
		a, b := &c.objects[i-1], &c.objects[i]
		if a.Kind == b.Kind && a.group() == b.group() && a.Metadata.Name == b.Metadata.Name && a.Metadata.Name != "" {
			return fmt.Errorf("there are two different manifests of %s", a)
		}
	}
	return nil
}

// readCSV reads the ClusterServiceVersion as OLM does: with encoding/json, for which a key in another case is the same
// field.
func (c *Contents) readCSV(o *object) error {
	var csv struct {
		Metadata struct {
			Name        string            `json:"name"`
			Labels      map[string]string `json:"labels"`
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
		Spec json.RawMessage `json:"spec"`
	}
	if err := json.Unmarshal(o.raw, &csv); err != nil {
		return fmt.Errorf("%s cannot be read: %w", o, err)
	}
	if csv.Metadata.Name != c.CSV {
		return fmt.Errorf("the ClusterServiceVersion is %s, want %s", text.Name(csv.Metadata.Name), text.Name(c.CSV))
	}
	if err := json.Unmarshal(csv.Spec, &c.spec); err != nil {
		return fmt.Errorf("the spec of %s cannot be read: %w", o, err)
	}
	c.labels, c.annotations = csv.Metadata.Labels, csv.Metadata.Annotations
	c.rawSpec, c.Version, c.Release = csv.Spec, c.spec.Version.String(), c.spec.Release.String()
	if err := c.setProperties(c.annotations[metakey.Properties]); err != nil {
		return fmt.Errorf("the properties of %s cannot be read: %w", o, err)
	}
	return nil
}

// Resolve sets what OLM takes from the catalog for a bundle that was read from its ConfigMap: the properties and
// replaces of the bundle's entry in status.bundleLookups of the plan. Without a ClusterServiceVersion it does nothing.
func (c *Contents) Resolve(properties, replaces string) {
	if c.Fault != "" || c.rawSpec == nil {
		return
	}
	c.catalog, c.spec.Replaces = true, replaces
	c.annotations = maps.Clone(c.annotations)
	if c.annotations == nil {
		c.annotations = map[string]string{}
	}
	c.annotations[metakey.Properties] = properties
	if err := c.setProperties(properties); err != nil {
		*c = Contents{CSV: c.CSV, Fault: text.Truncate("the properties of "+text.Name(c.CSV)+" cannot be read: "+
			err.Error(), maxText)}
	}
}

func (c *Contents) setProperties(wrapped string) error {
	bundle, err := olm.ParseBundle(wrapped)
	if err != nil {
		return err
	}
	c.Package, c.requires = bundle.Package, bundle.Requires
	c.deprecated = slices.ContainsFunc(bundle.Properties,
		func(p olm.Property) bool { return p.Type == olm.TypeDeprecated })
	if bundle.Version != "" {
		c.Version = bundle.Version
	}
	if bundle.Stated != "" {
		c.Release = bundle.Stated
	}
	return nil
}

// ClusterServiceVersion returns the ClusterServiceVersion as OLM writes it, without what Constraints do not read. An
// error is the Fault.
func (c *Contents) ClusterServiceVersion() (*olm.CSV, error) {
	if c.Fault != "" {
		return nil, errors.New(c.Fault)
	}
	raw, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"name": c.CSV, "annotations": c.annotations},
		"spec":     json.RawMessage(c.typedSpec()),
	})
	if err != nil {
		return nil, fmt.Errorf("ClusterServiceVersion %s cannot be read: %w", text.Name(c.CSV), err)
	}
	csv, err := olm.Decode[olm.CSV](raw)
	if err != nil {
		return nil, fmt.Errorf("ClusterServiceVersion %s cannot be read: %w", text.Name(c.CSV), err)
	}
	return csv, nil
}

// Grants returns the RBAC objects that come along with the ClusterServiceVersion.
func (c *Contents) Grants() []*olm.Grants {
	var grants []*olm.Grants
	for i := range c.objects {
		if o := &c.objects[i]; olm.IsGrant(o.Kind) {
			grants = append(grants, olm.ReadGrants(o.Kind, o.Metadata.Name, o.raw))
		}
	}
	return grants
}

// specDigest returns the olm.CSVSpec.ContentsDigest of the ClusterServiceVersion that OLM writes.
func (c *Contents) specDigest() [sha256.Size]byte {
	raw := []byte(c.rawSpec)
	switch {
	case c.rawSpec == nil:
		return [sha256.Size]byte{}
	case c.catalog:
		raw = c.typedSpec()
	}
	return olm.Combined(olm.ContentsDigest(raw), olm.AnnotationsDigest(c.annotations))
}

// typedSpec returns the spec as OLM encodes it: without unknown fields, and with the zero values of known ones.
func (c *Contents) typedSpec() []byte {
	raw, err := json.Marshal(&c.spec)
	if err != nil {
		return c.rawSpec // a version, label or port that decoded but does not encode: none is known
	}
	return raw
}
