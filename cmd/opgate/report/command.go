// Package report is `opgate report`: the operators of one or several clusters, what is decided on each, and what waits for
// whom, on one page. The decisions are those of package rules.
package report

import (
	"context"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/util/workqueue"

	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/cmd/opgate/cluster"
	"github.com/opgate/opgate/internal/text"
)

// self is the name of the command.
const self cli.Name = "report"

// maxClusters is the number of clusters that are read at the same time.
const maxClusters = 8

// options are the flags.
type options struct {
	files, contexts []string
	output          string
	kubeconfig      cli.Kubeconfig
}

const long = `Report the operators of clusters: version, policies, what is decided on what is installed, what waits, since when and for
whom, and which version is next. Nothing is written.

Each --context is a cluster, and so is each -f, with what "kubectl get" exported of one. Without either it is that of the
current context. The HTML page needs no server, no script and no network, and can be printed.

A waiting InstallPlan waits for the policies and Constraints that hold or refuse it, for Opgate, which approves what is
allowed, or for a "user", where Opgate leaves the approval. ClusterRole opgate-reader grants all that is read.

The JSON has the same:

  {"generated", "clusters": [{"name", "error"}],
   "operators": [{"cluster", "namespace", "package", "csv", "version", "policies": ["..."], "decision": "Allow"|"Hold"|"Deny",
     "messages": ["..."], "next", "waiting": {"plan", "csv", "since", "decision", "for": ["..."], "messages": ["..."]}}]}

Exit codes:
  0  all clusters are reported, whatever is decided
  2  the command line or the input cannot be used, or a cluster cannot be read; the others are reported`

const example = `  # a page of three clusters
  opgate report --context dev --context stage --context prod -o html > operators.html

  # of what was exported, for a machine without access
  opgate report -f dev.yaml -f prod.yaml`

// Command returns `opgate report`. now is the clock for approval windows and ages.
func Command(now func() time.Time) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:     "report [--context NAME]... | report -f FILE|DIR|-...",
		Short:   "Report the operators of clusters on one page",
		Long:    long,
		Example: example,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := self.CheckFiles(o.files); err != nil {
				return err
			}
			if len(o.files) > 0 && (len(o.contexts) > 0 || o.kubeconfig.Given()) {
				return self.Usage("-f reports what files have: leave out the flags that name a cluster")
			}
			r := o.read(cmd.Context(), cmd.InOrStdin(), cmd.ErrOrStderr(), now().UTC())
			if err := formats[o.output](cmd.OutOrStdout(), r); err != nil {
				return self.Unusable("write the report: %v", err)
			}
			for _, c := range r.Clusters {
				if c.Error != "" {
					return self.Unusable("cluster %s is not reported: %s", text.Name(c.Name), text.Escape(c.Error))
				}
			}
			return nil
		},
	}
	flags := self.Flags(cmd)
	cli.FilesVar(flags, &o.files)
	flags.StringArrayVar(&o.contexts, "context", nil, "kubeconfig context of a cluster; repeatable (default: the current one)")
	o.kubeconfig.RegisterNamespace(cmd)
	cli.OutputVar(cmd, &o.output, formats)
	o.kubeconfig.Register(cmd)
	return cmd
}

// formats print a report.
var formats = map[string]func(io.Writer, *report) error{
	"text": printText, "html": printPage, "json": func(out io.Writer, r *report) error { return cli.JSON(out, r) },
}

// clusters returns a cluster for each file, or each context, in the order of the command line.
func (o *options) clusters() (all []*reported) {
	add := func(name string) *reported {
		all = append(all, &reported{Name: name, Input: cluster.Input{Kubeconfig: o.kubeconfig, All: o.kubeconfig.Overrides.Context.Namespace == ""}})
		return all[len(all)-1]
	}
	for _, file := range o.files {
		name := "standard input"
		if file != cli.StandardInput {
			name = strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
		}
		if name == "" || slices.ContainsFunc(all, func(c *reported) bool { return c.Name == name }) {
			name = file // dev/export.yaml and prod/export.yaml
		}
		add(name).Files = []string{file}
	}
	for _, name := range o.contexts {
		add(name).Overrides.CurrentContext = name
	}
	if len(all) == 0 {
		add("current context")
	}
	return all
}

// read reads the clusters; one that cannot be read has an error.
func (o *options) read(ctx context.Context, stdin io.Reader, stderr io.Writer, now time.Time) *report {
	r := &report{Generated: now, Clusters: o.clusters(), Operators: []*operator{}}
	found, workers := make([][]*operator, len(r.Clusters)), maxClusters
	if len(o.files) > 0 {
		workers = 1 // notes on files are printed as these are read
	}
	workqueue.ParallelizeUntil(ctx, workers, len(r.Clusters), func(i int) {
		c := r.Clusters[i]
		state, err := c.Read(ctx, cluster.Options{}, stdin, stderr)
		if err != nil {
			c.Error = err.Error()
			return
		}
		c.Notes, found[i] = state.Notes, operators(state, c.Name, now)
	})
	r.Operators = append(r.Operators, slices.Concat(found...)...)
	return r
}
