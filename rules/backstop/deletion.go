package backstop

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/fair"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/operatorpolicy"
)

// The keys by which objects are protected. Those of different kinds of objects differ by their form:
//
//   - PACKAGE.NAMESPACE, as OLM truncates it for labels: the Subscriptions and ClusterServiceVersions of the package,
//     and the definitions with that label
//   - package:PACKAGE: the same of the package in any namespace; for definitions also as far as the label has it
//   - everyOperator: the same of any package, and every CatalogSource
//   - NAMESPACE: the OperatorGroups of the namespace of an operator, and that namespace
//   - namespace/NAME: another namespace with something that is protected
//   - NAMESPACE/NAME: a CatalogSource
const (
	everyOperator = "*"
	anywhere      = "package:"
)

// protected is what a policy protects, or a part of what a Constraint does.
type protected struct {
	fair.Origin
	action policyv1beta2.DeletionAction
	keys   []string
}

// key is NAMESPACE/NAME of the policy, and NAME of the Constraint.
func (p *protected) key() string { return word(p.String()) }

// row is "ACTION ORIGIN OTHERS".
func (p *protected) row(others int) string {
	return fmt.Sprintf("%s %s %d", p.action, p.key(), others)
}

func catalogKeys(c olm.Catalog) []string {
	if c.Name == "" || c.Namespace == "" {
		return nil
	}
	return []string{c.Namespace + "/" + c.Name, "namespace/" + c.Namespace}
}

// protectedBy returns what a policy protects: namespaces, and OperatorGroups, only where the operator or the catalog is.
func (in *Input) protectedBy(p *operatorpolicy.Policy) *protected {
	keys := []string{"namespace/" + p.Namespace}
	if in.AsWritten || slices.Contains(in.Catalogs, p.Catalog) {
		keys = append(keys, catalogKeys(p.Catalog)...)
	}
	if in.AsWritten && p.TargetNamespace != "" || slices.ContainsFunc(in.Operators[p.TargetNamespace], p.Governs) {
		keys = append(keys, p.TargetNamespace)
	}
	if component := olm.Component(p.Package, p.TargetNamespace); component != "" {
		keys = append(keys, component)
	}
	return &protected{p.Origin(), p.Deletion, words(keys)}
}

// protectedByConstraint returns what a Constraint protects: first that which needs no look at what is installed, then
// each namespace with an operator.
func (in *Input) protectedByConstraint(d *constraint.Definition) []*protected {
	var keys []string
	if len(d.Deletion.Packages) == 0 {
		keys = append(keys, everyOperator)
	}
	for _, pkg := range d.Deletion.Packages {
		const shortest = ".n"
		// without a namespace, as a label has it that has no room for one
		keys = append(keys, anywhere+pkg, anywhere+strings.TrimSuffix(olm.Component(pkg, shortest[1:]), shortest))
	}
	for _, c := range d.Deletion.Catalogs {
		keys = append(keys, catalogKeys(c)...)
	}
	parts := []*protected{{fair.Origin{Name: d.Name}, d.Deletion.Action, words(keys)}}
	for _, namespace := range slices.Sorted(maps.Keys(in.Operators)) {
		if !slices.Contains(in.ExcludedNamespaces, namespace) &&
			slices.ContainsFunc(in.Operators[namespace], d.Deletion.Of) {
			parts = append(parts, &protected{fair.Origin{Name: d.Name}, d.Deletion.Action, words([]string{namespace})})
		}
	}
	return parts
}

// words returns keys as columns of a row, each once.
func words(keys []string) []string {
	for i := range keys {
		keys[i] = word(keys[i])
	}
	return sorted(keys)
}

// protections returns a row for each key that policies and Constraints protect: the strictest
// action, the first policy or Constraint that has it, policies before Constraints and by name, and how many others
// protect the same. Left is Objects.Unprotected.
func (in *Input) protections() (rows map[string][]string, left []fair.Origin) {
	var parts []*protected
	seen := map[string]bool{}
	for _, p := range in.Policies {
		if p.Deletion != policyv1beta2.DeletionAllow && !slices.Contains(in.ExcludedNamespaces, p.TargetNamespace) &&
			!seen[p.Source()] {
			seen[p.Source()] = true // those of every namespace come with each of them
			parts = append(parts, in.protectedBy(p))
		}
	}
	for _, c := range in.Constraints {
		if c.Deletion != nil {
			parts = append(parts, in.protectedByConstraint(c)...)
		}
	}
	claims := make([]fair.Claim[*protected], len(parts))
	for i, p := range parts {
		claims[i] = fair.Claim[*protected]{Origin: p.Origin, Row: p}
		for _, key := range p.keys {
			claims[i].Weight += sizeOf(key, []string{p.row(0)})
		}
	}
	kept, left := fair.Within(claims, maxTable)
	parts = fair.Rows(kept)
	slices.SortFunc(parts, func(a, b *protected) int {
		// Confirm precedes Deny; the key of a policy has a slash, which the name of a Constraint has not.
		return cmp.Or(cmp.Compare(b.action, a.action), strings.Count(b.key(), "/")-strings.Count(a.key(), "/"),
			cmp.Compare(a.key(), b.key()))
	})
	first, others := map[string]*protected{}, map[string]int{}
	for _, p := range parts {
		for _, key := range p.keys {
			if first[key] == nil {
				first[key] = p
			} else {
				others[key]++
			}
		}
	}
	rows = map[string][]string{}
	for key, p := range first {
		rows[key] = []string{p.row(others[key])}
	}
	return rows, left
}
