// Package diff is `opgate diff`: what a plan, or another version in a catalog, changes beyond what is installed. The
// comparison is package rules/change, as in the gate, so that it has the same digest.
package diff

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/opgate/opgate/cmd/opgate/cli"
)

// The exit codes of the command, which are those of kubectl diff.
const (
	exitDifferent = 1 // something differs, or could not be compared
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
	pull       bool
	bundle     string
	fromBundle string
	output     string
}

const long = `Show what an InstallPlan changes beyond what is installed, or what one version of an operator changes beyond another: new
rights, webhooks, changes of CustomResourceDefinitions that objects may not survive, settings of pods that reach the
node, registries, other objects and requirements. Risky lines come first and begin with "!": they grant control of
the cluster or of a node. Nothing is written.

The digest stands for exactly this change, in every cluster. In spec.consent.accepted of the OperatorPolicy it lets the
plan be approved; other contents under the same name have another digest.

Plans are named as NAMESPACE/NAME and read from the cluster of the current context: the plan, the ConfigMap that OLM
unpacked the bundle into, and what is installed. With -f all of these are read from files instead; without names, every
plan that is still to be run is compared. What the files do not hold counts as not installed.

With --catalog two versions are compared in a file-based catalog, a directory or a file. Where a catalog has the manifests
of bundles (olm.bundle.object) the comparison is complete. Where it has olm.csv.metadata in their place, as most have,
rights, webhooks, CustomResourceDefinitions and pods are not in the catalog: with --pull they are read from the images of
the bundles, otherwise they are named as not compared, and there is no digest. Without --from the version is compared with
nothing, as for a first installation.

With --bundle a bundle is compared with that of --from-bundle: an image in a registry, an OCI layout, or a directory with
folders manifests and metadata. Registries are asked with the credentials of docker or podman, and nothing else is.

Colors are for terminals, and left out with $NO_COLOR. The JSON output is a list of

  {"plan", "csv", "package", "version", "channel", "catalog", "from", "fromVersion", "digest",
   "differences": [{"class", "risky", "text"}], "notes": ["..."], "notCompared": ["..."], "fault"}

in which digest is empty, and fault set, for what cannot be compared; plan, channel and catalog stand only on plans.

Exit codes, as of kubectl diff:
  0  nothing differs
  1  something differs, or the catalog does not have all that is compared
  2  the command line or the input cannot be used, or something cannot be compared`

const example = `  # what the plan would change that waits for approval
  opgate diff shop/install-x7

  # the same with the plugin, for a comment on a pull request
  kubectl opgate diff shop/install-x7 -o markdown

  # from files, for example in an air-gapped review
  kubectl get installplans,csv,subscriptions.operators.coreos.com -n shop -o yaml > shop.yaml
  kubectl get configmaps -n olm -l olm.managed=true -o yaml > bundles.yaml
  kubectl get crds,clusterroles,clusterrolebindings -o yaml > cluster.yaml
  opgate diff -f shop.yaml -f bundles.yaml -f cluster.yaml

  # two versions in a catalog
  opgate diff --catalog catalog/ --from etcdoperator.v0.9.2 --to etcdoperator.v0.9.4

  # the same with the manifests from the images that the catalog names
  opgate diff --catalog catalog/ --from etcdoperator.v0.9.2 --to etcdoperator.v0.9.4 --pull

  # two bundles
  opgate diff --from-bundle quay.io/example/etcd-bundle:v0.9.2 --bundle quay.io/example/etcd-bundle:v0.9.4`

// Command returns `opgate diff`. Its errors carry the exit code as ExitCode() int, and an empty message where
// everything has been printed.
func Command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:     "diff [NAMESPACE/PLAN]... [-f FILE|DIR|-]... | diff --catalog DIR [--from CSV] --to CSV [--pull] | diff --bundle IMAGE|DIR",
		Short:   "Show what a plan, or another version, changes",
		Long:    long,
		Example: example,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("namespace") {
				for i := range args {
					args[i] = cli.InNamespace(o.namespace, args[i])
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
	cli.NamespaceVar(flags, &o.namespace, "objects in files")
	flags.StringVar(&o.catalog, "catalog", "", "directory or file of a file-based catalog")
	flags.StringVar(&o.from, "from", "", "ClusterServiceVersion to compare with (default: none, a first installation)")
	flags.StringVar(&o.to, "to", "", "ClusterServiceVersion to compare")
	flags.StringVar(&o.pkg, "package", "", "package of both, if the names are in several packages of the catalog")
	flags.BoolVar(&o.pull, "pull", false, "with --catalog: read manifests that the catalog does not have from the images of the bundles")
	flags.StringVar(&o.bundle, "bundle", "", "bundle to compare: an image in a registry, an OCI layout, or a directory with manifests and metadata")
	flags.StringVar(&o.fromBundle, "from-bundle", "", "bundle to compare --bundle with (default: none, a first installation)")
	cli.OutputVar(cmd, &o.output, formatNames())
	o.kubeconfig.Register(cmd)
	return cmd
}

// validate checks the command line and returns the plans that it names.
func (o *options) validate(args []string) ([]types.NamespacedName, error) {
	if err := cmp.Or(self.CheckFiles(o.files), self.CheckOutput(o.output, formatNames()), self.CheckNamespaces(o.namespace)); err != nil {
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
	case o.catalog == "" && (o.from+o.to+o.pkg != "" || o.pull):
		return nil, self.Usage("--from, --to, --package and --pull are for --catalog, which is missing")
	case o.catalog != "":
		return nil, nil
	case len(o.files)+len(args) == 0:
		return nil, self.Usage("nothing to compare: name a plan as NAMESPACE/NAME, files with -f, a catalog or a bundle")
	}
	plans := make([]types.NamespacedName, len(args))
	for i, arg := range args {
		var err error
		if plans[i], err = parsePlan(arg); err != nil {
			return nil, err
		}
	}
	return plans, nil
}

func (o *options) validateBundles(args []string) error {
	switch {
	case o.bundle == "":
		return self.Usage("--bundle is missing: name the bundle that is compared with --from-bundle")
	case o.catalog+o.from+o.to+o.pkg != "" || o.pull || len(o.files)+len(args) > 0:
		return self.Usage("--bundle compares two bundles: leave out plans, -f, --catalog, --from, --to, --package and --pull")
	}
	return nil
}

// run compares and prints.
func (o *options) run(ctx context.Context, plans []types.NamespacedName, stdin io.Reader, stdout, stderr io.Writer) error {
	results, err := o.compare(ctx, plans, stdin, stderr)
	if err != nil {
		return coded(err)
	}
	if err := formats[o.output](stdout, results, cli.Colors(stdout, os.Getenv)); err != nil {
		return coded(fmt.Errorf("write differences: %w", err))
	}
	code := 0
	for _, r := range results {
		switch {
		case r.Fault != "":
			code = exitUnusable
		case len(r.Differences)+len(r.notCompared) > 0:
			code = max(code, exitDifferent)
		}
	}
	if code != 0 {
		return &cli.ExitError{Code: code}
	}
	return nil
}

func (o *options) compare(ctx context.Context, plans []types.NamespacedName, stdin io.Reader, stderr io.Writer) ([]*result, error) {
	switch {
	case o.catalog != "":
		r, err := fromCatalog(ctx, o.catalog, o.pkg, o.from, o.to, o.pull)
		return []*result{r}, err
	case o.bundle != "":
		r, err := fromBundles(ctx, o.fromBundle, o.bundle)
		return []*result{r}, err
	case len(o.files) > 0:
		return fromFiles(o.files, o.namespace, plans, stdin, stderr)
	}
	return fromCluster(ctx, o.kubeconfig, plans)
}

// coded returns an error with the exit code for what is unusable.
func coded(err error) error {
	if own, ok := errors.AsType[*cli.ExitError](err); ok {
		return own
	}
	return self.Unusable("%v", err)
}
