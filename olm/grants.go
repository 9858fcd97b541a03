package olm

import (
	"crypto/sha256"
	"fmt"

	"github.com/opgate/opgate/internal/apijson"
	"github.com/opgate/opgate/internal/jsonsize"
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
func (r *StepResource) IsRBAC() bool { return grantKinds[r.Kind] }

// Grants reads the manifest of an RBAC object. It returns nil if the plan has none: for a bundle image it is a reference to a ConfigMap.
func (r *StepResource) Grants() *Grants {
	if r.Manifest.grants != nil || r.Manifest.text == nil {
		return r.Manifest.grants
	}
	raw := *r.Manifest.text
	g := &Grants{kind: r.Kind, name: r.Name, cluster: r.Kind == "ClusterRole" || r.Kind == "ClusterRoleBinding", digest: r.Manifest.Digest()}
	if len(raw) > maxListBytes {
		g.why = fmt.Sprintf("has %d bytes, more than the %d that are read", len(raw), maxListBytes)
		return g
	}
	var text string
	if err := apijson.Unmarshal(raw, &text); err != nil {
		g.why = "cannot be read"
		return g
	}
	if n, _ := jsonsize.Measure([]byte(text)); n > maxListValues {
		g.why = fmt.Sprintf("has %d values, more than the %d that are read", n, maxListValues)
		return g
	}
	var object struct {
		Kind string `json:"kind"`
		reference
		Rules []permissionRule `json:"rules"`
		// AggregationRule adds the rules of other roles.
		AggregationRule *struct{} `json:"aggregationRule"`
		RoleRef         *roleRef  `json:"roleRef"`
	}
	if err := apijson.Unmarshal([]byte(text), &object); err != nil {
		g.why = "cannot be read"
		return g
	}
	switch {
	case object.Kind == "ConfigMap" && object.complete():
		return nil
	case object.Kind != r.Kind && object.Kind != "":
		g.why = "is of another kind in its manifest"
	case r.Kind == "ClusterRoleBinding" || r.Kind == "RoleBinding":
		if g.role = object.RoleRef; g.role == nil {
			g.role = &roleRef{}
		}
	case object.AggregationRule != nil:
		g.role = &roleRef{} // of unknown roles
	}
	g.rules = object.Rules
	return g
}

// reference replaces the manifest of an object from an image. OLM accepts it only if all fields are set (refForStep in
// operator-lifecycle-manager pkg/controller/operators/catalog/manifests.go).
type reference struct {
	Name             string `json:"name"`
	Namespace        string `json:"namespace"`
	CatalogName      string `json:"catalogSourceName"`
	CatalogNamespace string `json:"catalogSourceNamespace"`
}

func (r *reference) complete() bool {
	return r.Name != "" && r.Namespace != "" && r.CatalogName != "" && r.CatalogNamespace != ""
}
