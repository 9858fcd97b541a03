package constraint

import (
	"slices"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/olm"
)

// Deletion is spec.deletion of a Constraint that restricts deletions.
type Deletion struct {
	// Action is Confirm or Deny.
	Action policyv1beta2.DeletionAction
	// Packages are those of the operators that are protected; none for all.
	Packages []string
	// Catalogs are protected by name.
	Catalogs []olm.Catalog
}

// newDeletion returns nil for a spec that restricts nothing.
func newDeletion(spec *constraintv1.ConstraintSpec) *Deletion {
	action := spec.EffectiveDeletion()
	if action == policyv1beta2.DeletionAllow {
		return nil
	}
	d := &Deletion{Action: action, Packages: spec.Deletion.Packages}
	for _, c := range spec.Deletion.Catalogs {
		d.Catalogs = append(d.Catalogs, olm.Catalog{Namespace: c.SourceNamespace, Name: c.Source})
	}
	return d
}

// Of reports whether the operators of a package are protected; "" is one that is not known.
func (d *Deletion) Of(pkg string) bool {
	return d != nil && (len(d.Packages) == 0 || slices.Contains(d.Packages, pkg))
}
