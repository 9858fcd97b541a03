package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/cmd/opgate/cluster"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/snapshot"
)

const impactLong = `Show what depends on an operator before it is deleted: the CustomResourceDefinitions that it owns, how many objects these have in all
namespaces, and which other installed operators need it. Nothing is written.

NAME is a package, a Subscription, a ClusterServiceVersion or a CustomResourceDefinition; without it, all operators of
the namespace are shown. Definitions are those that the ClusterServiceVersion lists as owned, and those
with OLM's label of the operator. Other operators need it if they list one of the definitions as required, or have a
property olm.gvk.required or olm.package.required for it.

Objects are counted with the rights of the user. What may not be listed is named, and only the namespace of the
operator is counted where that alone is allowed. The output in the formats of "kubectl get" is a
List, of which each of items is

  {"apiVersion", "kind", "metadata", "namespace", "clusterServiceVersion", "package", "subscriptions": [...],
   "definitions": [{"name", "kind", "objects", "atLeast", "first": ["NAMESPACE/NAME", ...], "countedIn", "problem"}],
   "neededBy": [{"namespace", "clusterServiceVersion", "needs": [...]}]}

in which problem says why objects are not counted, and countedIn is the namespace of which alone they are.

Exit codes:
  0  it was shown
  2  there is no such operator, the command line cannot be used, or the cluster cannot be read`

const impactExample = `  # what is lost with etcd in namespace shop
  kubectl opgate impact etcd -n shop

  # and with the whole namespace
  kubectl opgate impact -n shop`

const (
	// maxFirst bounds the objects of a definition that are named, and maxNeeding the operators that are printed.
	maxFirst   = 5
	maxNeeding = 20
)

// impact is what depends on one installed operator.
type impact struct {
	Namespace     string             `json:"namespace"`
	CSV           string             `json:"clusterServiceVersion"`
	Package       string             `json:"package"`
	Subscriptions []string           `json:"subscriptions"`
	Definitions   []definitionImpact `json:"definitions"`
	NeededBy      []dependent        `json:"neededBy"`

	owned, required []v1alpha1.CRDDescription
	requires        []olm.Capability
}

// definitionImpact is a definition, and its objects.
type definitionImpact struct {
	Name      string   `json:"name"`
	Kind      string   `json:"kind"`
	Objects   int      `json:"objects"`
	AtLeast   bool     `json:"atLeast"`
	First     []string `json:"first"`
	CountedIn string   `json:"countedIn"`
	Problem   string   `json:"problem"`
}

// dependent is an installed operator that needs another one.
type dependent struct {
	Namespace string   `json:"namespace"`
	CSV       string   `json:"clusterServiceVersion"`
	Needs     []string `json:"needs"`
}

func impactCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:     "impact [NAME]",
		Short:   "Show which definitions, objects and operators depend on an operator",
		Long:    impactLong,
		Example: impactExample,
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			name := strings.Join(args, " ")
			if len(args) > 1 || len(args) == 1 && name == "" || name == "" && o.all ||
				len(name) > catalog.MaxName {
				return cli.Usage(cmd, "write the name of one operator, or a namespace, as in: impact etcd -n shop")
			}
			reader, err := cluster.Connect(o.kubeconfig)
			if err != nil {
				return unusable("%v", err)
			}
			named, err := impacts(cmd.Context(), reader, cmd.ErrOrStderr(), o.namespace, name)
			if err != nil {
				return unusable("%s", text.Escape(err.Error()))
			}
			return printImpacts(cmd.OutOrStdout(), &o.output, named)
		},
		ValidArgsFunction: completePackages,
	}
	o.registerAll(cmd)
	o.register(cmd)
	return cmd
}

// impacts returns what depends on the operators of a name, of one namespace or, with "", of all.
func impacts(ctx context.Context, reader *cluster.Reader, stderr io.Writer, namespace, name string) ([]*impact, error) {
	all, err := installedOperators(ctx, reader, "")
	if forbidden, ok := errors.AsType[*cluster.Forbidden](err); ok && namespace != "" {
		fmt.Fprintln(stderr, "warning: operators of other namespaces that need it are not known: "+
			text.Escape(forbidden.Error()))
		all, err = installedOperators(ctx, reader, namespace)
	}
	if err != nil {
		return nil, err
	}
	named := slices.DeleteFunc(slices.Clone(all), func(i *impact) bool {
		return namespace != "" && i.Namespace != namespace || name != "" && !i.isNamed(name)
	})
	if len(named) == 0 && name == "" {
		return nil, fmt.Errorf("no operator is installed in namespace %s", namespace)
	}
	if len(named) == 0 {
		return nil, fmt.Errorf("no operator %s is installed: there is no package, Subscription, ClusterServiceVersion or "+
			"owned CustomResourceDefinition of that name", text.Quote(name))
	}
	for _, i := range named {
		i.count(ctx, reader, stderr)
		i.neededBy(all)
	}
	return named, nil
}

// installedOperators returns the operators of one namespace or, with "", of all, by namespace and name: their
// ClusterServiceVersions, and Subscriptions without one.
func installedOperators(ctx context.Context, reader *cluster.Reader, namespace string) ([]*impact, error) {
	var all []*impact
	err := reader.Each(ctx, snapshot.ClusterServiceVersions, namespace, func(raw []byte) error {
		if csv, err := olm.Decode[olm.CSV](raw); err == nil {
			i := &impact{Namespace: csv.Metadata.Namespace, CSV: csv.Metadata.Name, Subscriptions: []string{}}
			i.owned, i.required = olm.ReadDefinitions(raw)
			if properties, err := olm.ParseProperties(csv.Metadata.Annotations.Properties); err == nil {
				i.requires = olm.Requires(properties)
				if bundle, err := olm.ParseBundle(csv.Metadata.Annotations.Properties); err == nil {
					i.Package = bundle.Package
				}
			}
			all = append(all, i)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = reader.Each(ctx, snapshot.Subscriptions, namespace, func(raw []byte) error {
		sub, err := olm.Decode[olm.Subscription](raw)
		if err != nil {
			return nil //nolint:nilerr // what cannot be decoded subscribes to nothing
		}
		found := false
		for _, i := range all {
			belongs := i.CSV == sub.Status.InstalledCSV || i.CSV == sub.Status.CurrentCSV ||
				i.Package != "" && i.Package == sub.Spec.Package
			if i.Namespace == sub.Metadata.Namespace && i.CSV != "" && belongs {
				i.Package = cmp.Or(i.Package, sub.Spec.Package)
				i.Subscriptions, found = append(i.Subscriptions, sub.Metadata.Name), true
			}
		}
		if !found {
			all = append(all, &impact{Namespace: sub.Metadata.Namespace, Package: sub.Spec.Package,
				Subscriptions: []string{sub.Metadata.Name}})
		}
		return nil
	})
	slices.SortStableFunc(all, func(a, b *impact) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.CSV, b.CSV))
	})
	return all, err
}

// isNamed reports whether a name is that of the operator, or of a definition that it owns.
func (i *impact) isNamed(name string) bool {
	return i.Package == name || i.CSV == name || slices.Contains(i.Subscriptions, name) ||
		slices.ContainsFunc(i.owned, func(d v1alpha1.CRDDescription) bool { return d.Name == name })
}

// count reads the definitions and their objects.
func (i *impact) count(ctx context.Context, reader *cluster.Reader, stderr io.Writer) {
	i.Definitions = []definitionImpact{}
	if component := olm.Component(i.Package, i.Namespace); component != "" {
		names, err := reader.Labelled(ctx, component)
		if err != nil {
			fmt.Fprintln(stderr, "warning: definitions with OLM's label of the operator are not known: "+
				text.Escape(err.Error()))
		}
		for _, name := range names {
			if !slices.ContainsFunc(i.owned, func(d v1alpha1.CRDDescription) bool { return d.Name == name }) {
				i.owned = append(i.owned, v1alpha1.CRDDescription{Name: name})
			}
		}
	}
	counted := map[string]bool{} // a definition is listed once for each of its versions
	for _, d := range i.owned {
		if counted[d.Name] {
			continue
		}
		counted[d.Name] = true
		found := definitionImpact{Name: d.Name, Kind: d.Kind, First: []string{}}
		if usage, err := reader.Usage(ctx, d, i.Namespace, maxFirst); err != nil {
			found.Problem = err.Error()
		} else {
			found.Objects, found.AtLeast, found.First, found.CountedIn = usage.Count, usage.More, usage.First,
				usage.Namespace
		}
		i.Definitions = append(i.Definitions, found)
	}
}

// neededBy adds the operators that need this one. Versions of one package in one namespace follow one another.
func (i *impact) neededBy(all []*impact) {
	i.NeededBy = []dependent{}
	for _, other := range all {
		if other.Namespace == i.Namespace && (other.CSV == i.CSV || other.Package != "" && other.Package == i.Package) {
			continue
		}
		var needs []string
		for _, d := range i.owned {
			_, group, _ := strings.Cut(d.Name, ".")
			if slices.ContainsFunc(other.required, func(r v1alpha1.CRDDescription) bool { return r.Name == d.Name }) {
				needs = append(needs, "definition "+d.Name)
			}
			for _, c := range other.requires {
				if c.Package == "" && c.Kind != "" && c.Kind == d.Kind && c.Group == group {
					needs = append(needs, fmt.Sprintf("kind %s of %s/%s", c.Kind, c.Group, c.Version))
				}
			}
		}
		for _, c := range other.requires {
			if c.Package != "" && c.Package == i.Package {
				needs = append(needs, "package "+c.Package)
			}
		}
		if slices.Sort(needs); len(needs) > 0 {
			i.NeededBy = append(i.NeededBy, dependent{Namespace: other.Namespace, CSV: other.CSV,
				Needs: slices.Compact(needs)})
		}
	}
}

func printImpacts(out io.Writer, format *output, all []*impact) error {
	if format.printer != nil {
		return items(format, out, olm.ClusterServiceVersionGVK, all, (*impact).key)
	}
	p := newPrinter(out)
	for _, i := range all {
		p.line(0, cell{i.title(), bold})
		for _, d := range i.Definitions {
			p.line(2, plain("definition "+d.Name+": "), d.count())
		}
		if len(i.Definitions) == 0 {
			p.line(2, plain("owns no definitions"))
		}
		for _, d := range i.NeededBy[:min(len(i.NeededBy), maxNeeding)] {
			p.line(2, cell{"needed by clusterserviceversion " + d.Namespace + "/" + d.CSV, yellow},
				plain(": "+strings.Join(d.Needs, ", ")))
		}
		if more := len(i.NeededBy) - maxNeeding; more > 0 {
			p.line(2, plain(fmt.Sprintf("and by %d more", more)))
		}
		if len(i.NeededBy) == 0 {
			p.line(2, plain("no other operator that can be seen needs it"))
		}
	}
	return p.Flush()
}

func (i *impact) key() types.NamespacedName {
	return types.NamespacedName{Namespace: i.Namespace, Name: i.CSV}
}

// title names the operator.
func (i *impact) title() string {
	title := "clusterserviceversion " + i.Namespace + "/" + i.CSV
	if i.CSV == "" {
		title = "no clusterserviceversion in " + i.Namespace
	}
	if i.Package != "" {
		title += ", package " + i.Package
	}
	if len(i.Subscriptions) > 0 {
		title += ", subscription " + strings.Join(i.Subscriptions, ", ")
	}
	return title
}

// count is how many objects a definition has, in words.
func (d *definitionImpact) count() cell {
	if d.Problem != "" {
		return cell{"objects are not counted: " + d.Problem, red}
	}
	objects := fmt.Sprintf("%d objects", d.Objects)
	if d.Objects == 1 {
		objects = "1 object"
	}
	if d.AtLeast {
		objects = "at least " + objects
	}
	if d.CountedIn != "" {
		objects += " in namespace " + d.CountedIn + ", which alone this user may list"
	}
	if len(d.First) == 0 {
		return plain(objects)
	}
	more := ""
	if d.Objects > len(d.First) || d.AtLeast {
		more = ", ..."
	}
	return cell{objects + ": " + strings.Join(d.First, ", ") + more, yellow}
}
