package check

import (
	"path"
	"slices"
	"strings"

	constraintv1 "github.com/opgate/opgate/api/constraint/v1"
	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/cmd/opgate/manifests"
	"github.com/opgate/opgate/internal/text"
)

// judgedBy collects which policies judged which clusters: a cluster without any is no green one.
type judgedBy struct {
	// cluster is set if the policies of a cluster judge as well.
	cluster bool
	groups  []judgedGroup
}

// judgedGroup are clusters that the same policies judged.
type judgedGroup struct{ clusters, policies []string }

// maxNamed bounds the clusters and the policies that one line names.
const maxNamed = 20

// add adds a cluster of which something was judged that is no policy.
func (b *judgedBy) add(m *manifests.Set, judged []judgement) {
	if !slices.ContainsFunc(judged, func(j judgement) bool { return j.plain() }) {
		return
	}
	var policies []string
	for _, o := range m.Objects {
		switch o.Value.(type) {
		case *policyv1beta2.OperatorPolicy, *constraintv1.Constraint:
			at := o.Kustomization
			if at == "" {
				at = path.Dir(o.File)
			}
			if policy := o.Kind + " " + o.Key() + " (" + at + ")"; len(m.Clusters) > 0 {
				policies = append(policies, policy)
			} else {
				policies = append(policies, o.Kind+" "+o.Key())
			}
		}
	}
	name := strings.Join(m.Clusters, " with ")
	i := slices.IndexFunc(b.groups, func(g judgedGroup) bool { return slices.Equal(g.policies, policies) })
	if i < 0 {
		b.groups = append(b.groups, judgedGroup{policies: policies})
		i = len(b.groups) - 1
	}
	b.groups[i].clusters = append(b.groups[i].clusters, name)
}

// notes are the last lines of a report, one for each group. An input that is one cluster has none, unless no policy
// judged it.
func (b *judgedBy) notes() (notes []manifests.Note) {
	for _, g := range b.groups {
		named := text.Join(g.clusters, maxNamed)
		switch {
		case len(g.policies) == 0 && b.cluster, len(g.policies) > 0 && named == "":
		case named == "":
			notes = append(notes, manifests.Note{Warning: true,
				Text: "judged by no policy: the input has no OperatorPolicy and no Constraint"})
		case len(g.policies) == 0:
			notes = append(notes, manifests.Note{Warning: true, Text: "judged by no policy: " + named})
		default:
			notes = append(notes, manifests.Note{Text: "judged by " + text.Join(g.policies, maxNamed) + ": " + named})
		}
	}
	return notes
}
