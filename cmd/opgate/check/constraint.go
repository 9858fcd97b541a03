package check

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/state"
)

// readConstraint reads either version: their schemas are one.
func readConstraint(raw []byte, o *object) []fieldFault {
	c, strict, err := rules.DecodeConstraint(raw)
	if err != nil {
		return []fieldFault{wrongType(raw, c, err)}
	}
	o.constraint, o.strict = c, strict
	o.identify(&olm.ObjectMeta{Name: c.Name, GenerateName: c.GenerateName, Namespace: c.Namespace})
	return missing(raw, nil)
}

// readNamespace reads a Namespace. It is context, not judged, so its fields are not checked.
func readNamespace(raw []byte, o *object) []fieldFault {
	var n metav1.PartialObjectMetadata
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &n); err != nil {
		return []fieldFault{wrongType(raw, &n, err)}
	}
	o.identify(&olm.ObjectMeta{Name: n.Name, GenerateName: n.GenerateName, Namespace: n.Namespace})
	metav1.SetMetaDataLabel(&n.ObjectMeta, corev1.LabelMetadataName, n.Name) // as every API server does
	o.labels = n.Labels
	var err error
	if o.raw, err = json.Marshal(&n); err != nil {
		return orFault(nil, err)
	}
	return nil
}

// versions are those of the cluster that the command line sets.
type versions struct{ kubernetes, openshift string }

// cluster is what is known of the cluster.
func (v *versions) cluster() (c state.Cluster, err error) {
	for _, f := range []struct {
		flag, value, example string
		into                 *string
	}{{"kubernetes-version", v.kubernetes, "1.36.3", &c.Version}, {"openshift-version", v.openshift, "4.19.3", &c.OpenShift}} {
		if f.value == "" {
			continue
		}
		// What vendors append (v1.36.3-eks-1234) would make it older than the release; OLM leaves it out as well.
		number, _, _ := strings.Cut(strings.TrimPrefix(f.value, "v"), "-")
		version, err := semver.ParseTolerant(number)
		if err != nil {
			return c, self.Usage("--%s %q is not a version such as %s", f.flag, f.value, f.example)
		}
		*f.into = fmt.Sprintf("%d.%d.%d", version.Major, version.Minor, version.Patch)
	}
	return c, nil
}

// constraintNotes states what a Constraint requires, and the properties it provides.
func constraintNotes(d *constraint.Definition) (notes []string) {
	warn := 0
	required := map[constraint.Target]int{}
	for _, c := range slices.Concat(d.Constraints, d.OnWrites) {
		if c.Action == constraint.Warn {
			warn++
		} else {
			required[c.On]++
		}
	}
	for _, of := range []struct {
		target constraint.Target
		what   string
	}{{constraint.OnBundle, "operator"}, {constraint.OnCatalogSource, olm.KindCatalogSource}, {constraint.OnOperatorGroup, olm.KindOperatorGroup}} {
		if n := required[of.target]; n > 0 {
			notes = append(notes, "requires "+counted(n, "constraint")+" of every "+of.what)
		}
	}
	if warn > 0 {
		notes = append(notes, "warns of "+counted(warn, "constraint"))
	}
	switch n := len(d.Properties); n {
	case 0:
	case 1:
		notes = append(notes, "offers 1 property")
	default:
		notes = append(notes, fmt.Sprintf("offers %d properties", n))
	}
	return notes
}

// judgedBy names the Constraints that apply in a namespace.
func (c *surroundings) judgedBy(ns *rules.Namespace) (notes []string) {
	if c.alone == nil {
		for _, d := range c.Constraints().Definitions() {
			c.alone = append(c.alone, constraint.NewSet([]*constraint.Definition{d}, *c.Facts()))
		}
	}
	for i, d := range c.Constraints().Definitions() {
		switch {
		case c.alone[i].Applies(ns.ForConstraints()):
			notes = append(notes, "judged by Constraint "+d.Name)
		case slices.ContainsFunc(d.Constraints, func(asked *constraint.Constraint) bool { return asked.Action == constraint.Warn }):
			notes = append(notes, "judged by Constraint "+d.Name+", only warns")
		}
	}
	return notes
}
