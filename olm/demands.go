package olm

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/opgate/opgate/internal/apijson"
	"github.com/opgate/opgate/internal/text"
)

// unread is the JSON of a part of an object, decoded only when a rule needs it; if it is too large, only the reason is
// kept.
type unread struct {
	raw []byte
	why string
}

// UnmarshalJSON keeps the JSON unless it is too large.
func (u *unread) UnmarshalJSON(raw []byte) error {
	*u = unread{}
	if n, _ := apijson.Measure(raw); n > maxListValues || len(raw) > maxListBytes {
		u.why = fmt.Sprintf("has %d values in %d bytes, more than the %d values and %d bytes that are read", n,
			len(raw), maxListValues, maxListBytes)
		return nil
	}
	u.raw = bytes.Clone(raw)
	return nil
}

// read decodes the part; field names it in the error.
func (u *unread) read(field string, into any) error {
	if u.why != "" {
		return fmt.Errorf("%s of the ClusterServiceVersion %s", field, u.why)
	}
	if len(u.raw) == 0 {
		return nil
	}
	if err := apijson.Unmarshal(u.raw, into); err != nil {
		return fmt.Errorf("%s of the ClusterServiceVersion cannot be read: %w", field, err)
	}
	return nil
}

// Demands are the rights that an operator requests: by its ClusterServiceVersion, and by the RBAC objects of its plan
// that OLM writes with its own rights.
type Demands struct {
	Spec   *CSVSpec
	Grants []*Grants
	// Scope is where the permissions apply.
	Scope Scope
}

// Digest covers everything that the lists are derived from.
func (d *Demands) Digest() [sha256.Size]byte {
	hash := sha256.New()
	hash.Write(d.Spec.Digest[:])
	hash.Write(d.Spec.annotations.raw)
	hash.Write([]byte(d.Spec.annotations.why))
	for _, g := range d.Grants {
		hash.Write(g.digest[:])
	}
	hash.Write([]byte{byte(d.Scope)})
	return [sha256.Size]byte(hash.Sum(nil))
}

// ScopeMatters reports whether the cluster-wide rights depend on a scope that is not known.
func (d *Demands) ScopeMatters() bool {
	if d.Scope != ScopeUnknown {
		return false
	}
	wide := *d
	wide.Scope = ScopeCluster
	most, err := wide.ClusterPermissions()
	least, _ := d.ClusterPermissions()
	return err != nil || len(most) != len(least)
}

// ClusterPermissions returns the cluster-wide rights, each with lists apiGroups, resources, verbs, resourceNames and
// nonResourceURLs. If the scope is not known and matters, the namespaced ones are
// missing.
func (d *Demands) ClusterPermissions() ([]map[string][]string, error) {
	return d.rights(&d.Spec.Install.Spec.ClusterPermissions, d.Scope == ScopeCluster, true)
}

// Permissions returns the namespaced rights, in the same form.
func (d *Demands) Permissions() ([]map[string][]string, error) {
	return d.rights(&unread{}, true, false)
}

// rights returns wide permissions and, where they count as well, the namespaced ones; with the grants of either scope.
func (d *Demands) rights(wide *unread, namespaced, cluster bool) ([]map[string][]string, error) {
	var rules ruleSet
	if err := rules.addPermissions("clusterPermissions", wide); err != nil {
		return nil, err
	}
	if namespaced {
		if err := rules.addPermissions("permissions", &d.Spec.Install.Spec.Permissions); err != nil {
			return nil, err
		}
	}
	for _, g := range d.Grants {
		if grantKinds[g.kind] == cluster || cluster && namespaced {
			if err := rules.addGrants(g, d.Grants); err != nil {
				return nil, err
			}
		}
	}
	return rules.lists, nil
}

// Webhooks returns the rules of webhooks, each with lists type, apiGroups, apiVersions, resources and operations, and an
// empty one for a webhook that has none, such as one for conversion.
func (d *Demands) Webhooks() ([]map[string][]string, error) {
	webhooks, err := d.webhooks()
	if err != nil {
		return nil, err
	}
	var lists []map[string][]string
	for _, w := range webhooks {
		if len(w.Rules) == 0 {
			w.Rules = []admissionregistrationv1.RuleWithOperations{{}}
		}
		for _, r := range w.Rules {
			var operations []string
			for _, o := range r.Operations {
				operations = append(operations, string(o))
			}
			lists = append(lists, map[string][]string{"type": {string(w.Type)}, "apiGroups": r.APIGroups,
				"apiVersions": r.APIVersions, "resources": r.Resources, "operations": operations})
		}
	}
	return lists, nil
}

// ConversionCRDs returns the names of the CustomResourceDefinitions whose objects the operator's webhooks convert: OLM
// writes the webhook into these. The definitions that a bundle brings are not read.
func (d *Demands) ConversionCRDs() ([]string, error) {
	webhooks, err := d.webhooks()
	var names []string
	for _, w := range webhooks {
		names = append(names, w.ConversionCRDs...)
	}
	return names, err
}

func (d *Demands) webhooks() (webhooks []v1alpha1.WebhookDescription, err error) {
	err = d.Spec.Webhooks.read("webhookdefinitions", &webhooks)
	return webhooks, err
}

// Annotations returns the annotations of the ClusterServiceVersion, nil for one that is longer than maxAnnotation.
func (d *Demands) Annotations() (map[string]*string, error) {
	var texts map[string]*string
	err := d.Spec.annotations.read("annotations", &texts)
	return texts, err
}

// ruleSet collects rules without duplicates: OLM turns the rights in a ClusterServiceVersion into steps of the plan
// too.
type ruleSet struct {
	lists []map[string][]string
	known map[string]bool
}

func (s *ruleSet) add(r rbacv1.PolicyRule) {
	key := fmt.Sprintf("%q", [][]string{r.APIGroups, r.Resources, r.ResourceNames, r.NonResourceURLs, r.Verbs})
	if s.known[key] {
		return
	}
	if s.known == nil {
		s.known = map[string]bool{}
	}
	s.known[key] = true
	s.lists = append(s.lists, map[string][]string{"apiGroups": r.APIGroups, "resources": r.Resources,
		"resourceNames": r.ResourceNames, "nonResourceURLs": r.NonResourceURLs, "verbs": r.Verbs})
}

func (s *ruleSet) addPermissions(field string, from *unread) error {
	var permissions []v1alpha1.StrategyDeploymentPermissions
	if err := from.read(field, &permissions); err != nil {
		return err
	}
	for _, p := range permissions {
		for _, r := range p.Rules {
			s.add(r)
		}
	}
	return nil
}

// addGrants adds the rules of an RBAC object. A binding adds nothing if its role is in the plan, and else everything:
// what a role allows that exists already, or is created later, is not known here.
func (s *ruleSet) addGrants(g *Grants, all []*Grants) error {
	switch {
	case g.why != "":
		return fmt.Errorf("%s %s, which comes along, %s", g.kind, text.Name(g.name), g.why)
	case g.role != nil:
		for _, other := range all {
			if other.kind == g.role.Kind && other.name == g.role.Name {
				return nil
			}
		}
		s.add(rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}})
		s.add(rbacv1.PolicyRule{NonResourceURLs: []string{"*"}, Verbs: []string{"*"}})
	}
	for _, r := range g.rules {
		s.add(r)
	}
	return nil
}

// grantKinds are the kinds of RBAC, and whether they are cluster-scoped. OLM writes a step's object by the step's field
// kind, whatever kind the manifest has.
var grantKinds = map[string]bool{"ClusterRole": true, "ClusterRoleBinding": true, "Role": false, "RoleBinding": false}

// Grants are the rights that an RBAC object of a plan grants.
type Grants struct {
	kind, name string
	rules      []rbacv1.PolicyRule
	// role is the roleRef of a binding.
	role *rbacv1.RoleRef
	// why is set if the object cannot be read.
	why    string
	digest [sha256.Size]byte
}

// IsRBAC reports whether the step writes an RBAC object.
func (r *StepResource) IsRBAC() bool { return IsGrant(r.Kind) }

// IsGrant reports whether a kind is one of RBAC.
func IsGrant(kind string) bool {
	_, is := grantKinds[kind]
	return is
}

// Grants reads the manifest of an RBAC object. It returns nil if the plan has none: for a bundle image it is a
// reference to a ConfigMap.
func (r *StepResource) Grants() *Grants {
	if r.Manifest.grants != nil || r.Manifest.text == nil {
		return r.Manifest.grants
	}
	raw := *r.Manifest.text
	g := &Grants{kind: r.Kind, name: r.Name, digest: r.Manifest.Digest()}
	if g.why = tooLong(raw); g.why != "" {
		return g
	}
	var text string
	if err := apijson.Unmarshal(raw, &text); err != nil {
		g.why = "cannot be read"
		return g
	}
	return g.read([]byte(text))
}

// ReadGrants reads an RBAC object of an unpacked bundle, from its JSON.
func ReadGrants(kind, name string, object []byte) *Grants {
	g := &Grants{kind: kind, name: name, digest: sha256.Sum256(object)}
	if g.why = tooLong(object); g.why == "" && g.read(object) == nil {
		g.why = "is a reference to another object"
	}
	return g
}

func tooLong(raw []byte) string {
	if len(raw) > maxListBytes {
		return fmt.Sprintf("has %d bytes, more than the %d that are read", len(raw), maxListBytes)
	}
	return ""
}

// read reads the object. It returns nil if that is a reference to a ConfigMap.
func (g *Grants) read(text []byte) *Grants {
	if n, _ := apijson.Measure(text); n > maxListValues {
		g.why = fmt.Sprintf("has %d values, more than the %d that are read", n, maxListValues)
		return g
	}
	var object struct {
		Reference
		Rules []rbacv1.PolicyRule `json:"rules"`
		// AggregationRule adds the rules of other roles.
		AggregationRule *struct{}       `json:"aggregationRule"`
		RoleRef         *rbacv1.RoleRef `json:"roleRef"`
	}
	// With encoding/json, as OLM reads it: a key in another case must not mean different things to the two.
	if err := json.Unmarshal(text, &object); err != nil {
		g.why = "cannot be read"
		return g
	}
	switch {
	case object.complete():
		return nil
	case object.Kind != g.kind && object.Kind != "":
		g.why = "is of another kind in its manifest"
	case g.kind == "ClusterRoleBinding" || g.kind == "RoleBinding":
		if g.role = object.RoleRef; g.role == nil {
			g.role = &rbacv1.RoleRef{}
		}
	case object.AggregationRule != nil:
		g.role = &rbacv1.RoleRef{} // of unknown roles
	}
	g.rules = object.Rules
	return g
}

// Reference replaces the manifest of an object from an image, which OLM unpacked into a ConfigMap. OLM accepts it only
// if the fields before Replaces are set (refForStep in operator-lifecycle-manager
// pkg/controller/operators/catalog/manifests.go).
type Reference struct {
	Kind             string `json:"kind"`
	Name             string `json:"name"`
	Namespace        string `json:"namespace"`
	CatalogName      string `json:"catalogSourceName"`
	CatalogNamespace string `json:"catalogSourceNamespace"`
	Replaces         string `json:"replaces"`
	Properties       string `json:"properties"`
}

func (r *Reference) complete() bool {
	return r.Kind == "ConfigMap" && r.Name != "" && r.Namespace != "" && r.CatalogName != "" && r.CatalogNamespace != ""
}

// ReadReference reads a manifest that may be one, as OLM does, with encoding/json: a key in another case must not mean
// different things to the two.
func ReadReference(manifest []byte) (ref Reference, ok bool) {
	err := json.Unmarshal(manifest, &ref)
	return ref, err == nil && ref.complete()
}
