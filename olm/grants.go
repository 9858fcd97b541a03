package olm

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"github.com/opgate/opgate/internal/apijson"
)

// grantKinds are the kinds of RBAC. OLM writes a step's object by the step's field kind, whatever the manifest says.
var grantKinds = map[string]bool{"ClusterRole": true, "ClusterRoleBinding": true, "Role": true, "RoleBinding": true}

// Grants are the rights that an RBAC object of a plan grants.
type Grants struct {
	kind, name string
	// cluster is set for cluster-scoped kinds.
	cluster bool
	rules   []permissionRule
	// role is the roleRef of a binding.
	role *roleRef
	// why is set if the object cannot be read.
	why    string
	digest [sha256.Size]byte
}

type roleRef struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
}

// IsRBAC reports whether the step writes an RBAC object.
func (r *StepResource) IsRBAC() bool { return IsGrant(r.Kind) }

// IsGrant reports whether a kind is one of RBAC.
func IsGrant(kind string) bool { return grantKinds[kind] }

// Grants reads the manifest of an RBAC object. It returns nil if the plan has none: for a bundle image it is a
// reference to a ConfigMap.
func (r *StepResource) Grants() *Grants {
	if r.Manifest.grants != nil || r.Manifest.text == nil {
		return r.Manifest.grants
	}
	raw := *r.Manifest.text
	g := newGrants(r.Kind, r.Name)
	g.digest = r.Manifest.Digest()
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
	g := newGrants(kind, name)
	g.digest = sha256.Sum256(object)
	if g.why = tooLong(object); g.why == "" && g.read(object) == nil {
		g.why = "is a reference to another object"
	}
	return g
}

func newGrants(kind, name string) *Grants {
	return &Grants{kind: kind, name: name, cluster: kind == "ClusterRole" || kind == "ClusterRoleBinding"}
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
		Rules []permissionRule `json:"rules"`
		// AggregationRule adds the rules of other roles.
		AggregationRule *struct{} `json:"aggregationRule"`
		RoleRef         *roleRef  `json:"roleRef"`
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
			g.role = &roleRef{}
		}
	case object.AggregationRule != nil:
		g.role = &roleRef{} // of unknown roles
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
