package rules

import (
	"crypto/sha256"
	"fmt"
	"slices"

	kjson "sigs.k8s.io/json"

	"github.com/opgate/opgate/rules/constraint"
)

const kindCSV = "ClusterServiceVersion"

// grantKinds are the kinds of RBAC. OLM writes the steps of a plan by this field of theirs, whatever the manifest says it is.
var grantKinds = map[string]bool{"ClusterRole": true, "ClusterRoleBinding": true, "Role": true, "RoleBinding": true}

// grants are the rights that an object of RBAC gives, which a plan brings along.
type grants struct {
	kind, name string
	// cluster is set for kinds that count in the whole cluster.
	cluster bool
	rules   []permissionRule
	// role is what a binding binds.
	role *roleRef
	// why is set where the object cannot be read.
	why    string
	digest [sha256.Size]byte
}

type roleRef struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
}

// grantsOf reads the manifest of a step. Nil is for one that is not in the plan: of an image it is a reference to a ConfigMap.
func grantsOf(r *StepResource) *grants {
	if r.Manifest.grants != nil || r.Manifest.text == nil {
		return r.Manifest.grants
	}
	raw := *r.Manifest.text
	g := &grants{kind: r.Kind, name: r.Name, cluster: r.Kind == "ClusterRole" || r.Kind == "ClusterRoleBinding", digest: r.Manifest.Digest}
	if len(raw) > maxListBytes {
		g.why = fmt.Sprintf("has %d bytes, more than the %d that are read", len(raw), maxListBytes)
		return g
	}
	var text string
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &text); err != nil {
		g.why = "cannot be read"
		return g
	}
	if n := constraint.CountValues([]byte(text)); n > maxListValues {
		g.why = fmt.Sprintf("has %d values, more than the %d that are read", n, maxListValues)
		return g
	}
	var object struct {
		Kind string `json:"kind"`
		reference
		Rules []permissionRule `json:"rules"`
		// AggregationRule makes the rules those of other roles.
		AggregationRule *struct{} `json:"aggregationRule"`
		RoleRef         *roleRef  `json:"roleRef"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &object); err != nil {
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
		g.role = &roleRef{} // of roles that are not known
	}
	g.rules = object.Rules
	return g
}

// reference is what stands in the place of a manifest for what came in an image. OLM takes it for one only if all is there
// (refForStep in operator-lifecycle-manager pkg/controller/operators/catalog/manifests.go).
type reference struct {
	Name             string `json:"name"`
	Namespace        string `json:"namespace"`
	CatalogName      string `json:"catalogSourceName"`
	CatalogNamespace string `json:"catalogSourceNamespace"`
}

func (r *reference) complete() bool {
	return r.Name != "" && r.Namespace != "" && r.CatalogName != "" && r.CatalogNamespace != ""
}

// grantTo adds what a step grants to the ClusterServiceVersion that it is of, and where the plan has none of that name, to all.
func grantTo(csvs []planCSV, step *Step) []planCSV {
	g := grantsOf(&step.Resource)
	if g == nil {
		return csvs
	}
	if i := slices.IndexFunc(csvs, func(c planCSV) bool { return c.name == step.Resolving }); i >= 0 {
		csvs[i].grants = append(csvs[i].grants, g)
		return csvs
	}
	for i := range csvs {
		csvs[i].grants = append(csvs[i].grants, g)
	}
	return csvs
}

// Trim drops of a stored plan all steps that judging does not read, and the texts of their manifests. Explaining a failed one needs
// all steps.
func (p *InstallPlan) Trim() {
	if p.Status.Phase != PhaseFailed {
		p.Status.Steps = slices.DeleteFunc(p.Status.Steps, func(s Step) bool {
			return s.Resource.Kind != kindCSV && !grantKinds[s.Resource.Kind] && !s.WritesDefinition()
		})
	}
	for i := range p.Status.Steps {
		r := &p.Status.Steps[i].Resource
		if grantKinds[r.Kind] {
			r.Manifest.grants = grantsOf(r)
		}
		r.Manifest.text = nil
	}
}

// oversized reports whether a plan has more entries than are judged.
func (p *InstallPlan) oversized() bool {
	return len(p.Spec.CSVNames)+len(p.Status.Steps)+len(p.Status.BundleLookups) > maxPlanEntries
}
