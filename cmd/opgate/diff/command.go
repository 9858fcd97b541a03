// Package diff is `opgate diff`: what a plan, or another version in a catalog, changes beyond what is installed. The
// comparison is package rules/change, as in the gate, so that it has the same digest.
package diff

import (
	"cmp"
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/cmd/opgate/cli"
)

// The exit codes of the command, which are those of kubectl diff.
const (
	exitDifferent = 1 // something differs
	// exitUnusable is for a plan that cannot be compared, too.
	exitUnusable = cli.ExitUnusable
)

// self is the name of the command.
const self cli.Name = "diff"

// options are the flags.
type options struct {
	files      []string
	namespace  string
	kubeconfig cli.Kubeconfig
	catalog    string
	pkg        string
	from, to   string
	bundle     string
	fromBundle string
	output     string
}

const long = `Show what an InstallPlan changes beyond what is installed, or what one version of an operator changes beyond another: new
rights, webhooks, definitions, settings of pods, registries, other objects and requirements. Lines that begin with "!"
are risky: they grant control of the cluster or of a node. Nothing is written. The digest stands for exactly this
change: in spec.consent.accepted of the OperatorPolicy it lets the plan be approved. docs/diff.md has what is
compared.

Plans, NAME or NAMESPACE/NAME, are read from the cluster of the current context, or from files, by -f. With --catalog two
versions in a file-based catalog that has their manifests are compared, with --bundle two bundles, directories with
folders manifests and metadata.

Exit codes, as of kubectl diff:
  0  nothing differs
  1  something differs
  2  the command line or the input cannot be used, or something cannot be compared`

const example = `  # what the plan would change that waits for approval
  kubectl opgate diff shop/install-x7

  # from files, for example in an air-gapped review
  opgate diff -f shop.yaml -f bundles.yaml -f cluster.yaml

  # two versions in a catalog, and two bundles
  opgate diff --catalog catalog/ --from etcdoperator.v0.9.2 --to etcdoperator.v0.9.4
  opgate diff --from-bundle etcd-0.9.2/ --bundle etcd-0.9.4/`

// Command returns `opgate diff`. Its errors carry the exit code as ExitCode() int, and an empty message where
// everything has been printed.
func Command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:     "diff [[NAMESPACE/]PLAN]... [-f FILE|DIR|-]... | diff --catalog DIR [--from CSV] --to CSV | diff --bundle DIR",
		Short:   "Show what a plan, or another version, changes",
		Long:    long,
		Example: example,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.namespace = o.kubeconfig.Overrides.Context.Namespace; len(o.files) > 0 {
				o.namespace = cmp.Or(o.namespace, metav1.NamespaceDefault)
			} else if len(args) > 0 {
				var err error
				if o.namespace, err = o.kubeconfig.Namespace(); err != nil {
					return err
				}
			}
			plans, err := o.validate(args)
			if err != nil {
				return err
			}
			return o.run(cmd.Context(), plans, cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := self.Flags(cmd)
	cli.FilesVar(flags, &o.files)
	o.kubeconfig.RegisterNamespace(cmd)
	flags.StringVar(&o.catalog, "catalog", "", "directory or file of a file-based catalog")
	flags.StringVar(&o.from, "from", "", "ClusterServiceVersion to compare with (default: none, a first installation)")
	flags.StringVar(&o.to, "to", "", "ClusterServiceVersion to compare")
	flags.StringVar(&o.pkg, "package", "", "package of both, if the names are in several packages of the catalog")
	flags.StringVar(&o.bundle, "bundle", "", "bundle to compare: a directory with folders manifests and metadata")
	flags.StringVar(&o.fromBundle, "from-bundle", "",
		"bundle to compare --bundle with (default: none, a first installation)")
	cli.OutputVar(cmd, &o.output, formats)
	o.kubeconfig.Register(cmd)
	return cmd
}

// validate checks the command line and returns the plans that it names.
func (o *options) validate(args []string) ([]types.NamespacedName, error) {
	if err := cmp.Or(self.CheckFiles(o.files),
		self.CheckNamespaces(cmp.Or(o.namespace, metav1.NamespaceDefault))); err != nil {
		return nil, err
	}
	if o.bundle+o.fromBundle != "" {
		return nil, o.validateBundles(args)
	}
	switch {
	case o.catalog != "" && len(o.files)+len(args) > 0:
		return nil, self.Usage("--catalog compares two versions, and no plan: leave out plans and -f")
	case o.catalog != "" && o.to == "":
		return nil, self.Usage("--to is missing: name the ClusterServiceVersion that is compared")
	case o.catalog == "" && o.from+o.to+o.pkg != "":
		return nil, self.Usage("--from, --to and --package are for --catalog, which is missing")
	case o.catalog != "":
		return nil, nil
	case len(o.files)+len(args) == 0:
		return nil, self.Usage("nothing to compare: name a plan, files with -f, a catalog or a bundle")
	}
	plans := make([]types.NamespacedName, len(args))
	for i, arg := range args {
		var ok bool
		if plans[i], ok = cli.NamespacedName(arg, o.namespace); !ok {
			return nil, self.Usage("%q is no name of an InstallPlan: write NAME or NAMESPACE/NAME, and files with -f", arg)
		}
	}
	return plans, nil
}

func (o *options) validateBundles(args []string) error {
	switch {
	case o.bundle == "":
		return self.Usage("--bundle is missing: name the bundle that is compared with --from-bundle")
	case o.catalog+o.from+o.to+o.pkg != "" || len(o.files)+len(args) > 0:
		return self.Usage("--bundle compares two bundles: leave out plans, -f, --catalog, --from, --to and --package")
	}
	return nil
}

// run compares and prints.
func (o *options) run(
	ctx context.Context, plans []types.NamespacedName, stdin io.Reader, stdout, stderr io.Writer,
) error {
	results, err := o.compare(ctx, plans, stdin, stderr)
	if err != nil {
		return self.Failed(err)
	}
	if err := formats[o.output](stdout, results); err != nil {
		return self.Failed(fmt.Errorf("write differences: %w", err))
	}
	code := 0
	for _, r := range results {
		switch {
		case r.Fault != "":
			code = exitUnusable
		case len(r.Differences) > 0:
			code = max(code, exitDifferent)
		}
	}
	if code != 0 {
		return &cli.ExitError{Code: code}
	}
	return nil
}

func (o *options) compare(
	ctx context.Context, plans []types.NamespacedName, stdin io.Reader, stderr io.Writer,
) ([]*result, error) {
	switch {
	case o.catalog != "":
		r, err := fromCatalog(ctx, o)
		return []*result{r}, err
	case o.bundle != "":
		r, err := fromBundles(o.fromBundle, o.bundle)
		return []*result{r}, err
	case len(o.files) > 0:
		return fromFiles(o.files, o.namespace, plans, stdin, stderr)
	}
	return fromCluster(ctx, o.kubeconfig, plans)
}
