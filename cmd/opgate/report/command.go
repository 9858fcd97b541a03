// Package report is `opgate report`: the operators of one or several clusters, what is decided on each, and what waits for
// whom, on one page. The decisions are those of package rules.
package report

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/cmd/opgate/cluster"
	"github.com/opgate/opgate/cmd/opgate/manifests"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/rules/facts"
	"github.com/opgate/opgate/snapshot"
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
     "governed", "messages": ["..."], "next", "waiting": {"plan", "csv", "since", "decision", "for": ["..."], "messages": ["..."]}}]}

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
			if err := cmp.Or(self.CheckFiles(o.files), self.CheckOutput(o.output, formatNames())); err != nil {
				return err
			}
			if len(o.files) > 0 && (len(o.contexts) > 0 || o.kubeconfig.Given()) {
				return self.Usage("-f reports what files have: leave out the flags that name a cluster")
			}
			r := &report{Generated: now().UTC(), Clusters: []*reported{}, Operators: []*operator{}}
			if len(o.files) > 0 {
				if err := o.readFiles(r, cmd.InOrStdin(), cmd.ErrOrStderr()); err != nil {
					return err
				}
			} else {
				o.readClusters(cmd.Context(), r, cmd.ErrOrStderr(), now)
			}
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
	cli.OutputVar(cmd, &o.output, formatNames())
	o.kubeconfig.Register(cmd)
	return cmd
}

// formats print a report.
var formats = map[string]func(io.Writer, *report) error{
	"text": printText, "html": printPage, "json": func(out io.Writer, r *report) error { return cli.JSON(out, r) },
}

func formatNames() []string { return slices.Sorted(maps.Keys(formats)) }

// readFiles adds a cluster for each name.
func (o *options) readFiles(r *report, stdin io.Reader, stderr io.Writer) error {
	for _, file := range o.files {
		unit, err := manifests.Read([]string{file}, stdin, stderr, manifests.Options{})
		if err != nil {
			return err
		}
		base := filepath.Base(file)
		name := strings.TrimSuffix(base, filepath.Ext(base))
		if file == cli.StandardInput {
			name = "standard input"
		}
		r.add(name, unit.Snapshot(facts.Cluster{}), o.kubeconfig.Overrides.Context.Namespace, nil)
	}
	return nil
}

// readClusters adds the clusters of the contexts, in their order.
func (o *options) readClusters(ctx context.Context, r *report, stderr io.Writer, now func() time.Time) {
	contexts := o.contexts
	if len(contexts) == 0 {
		contexts = []string{""}
	}
	states, faults := make([]*cluster.State, len(contexts)), make([]error, len(contexts))
	count, clear := cli.Progress(stderr, "clusters", now)
	defer clear()
	var running sync.WaitGroup
	var mu sync.Mutex
	tokens, done := make(chan struct{}, maxClusters), 0
	for i, name := range contexts {
		of := o.kubeconfig
		of.Overrides.CurrentContext = name
		tokens <- struct{}{}
		running.Go(func() {
			defer func() { <-tokens }()
			states[i], faults[i] = read(ctx, of)
			mu.Lock()
			defer mu.Unlock()
			if done++; count != nil {
				count(done)
			}
		})
	}
	running.Wait()
	for i, name := range contexts {
		if faults[i] != nil {
			r.Clusters = append(r.Clusters, &reported{Name: cmp.Or(name, current), Error: faults[i].Error()})
			continue
		}
		r.add(cmp.Or(name, current), states[i].Snapshot, o.kubeconfig.Overrides.Context.Namespace, states[i].Notes)
	}
}

// current is the name of the only cluster of a report.
const current = "current context"

func read(ctx context.Context, of cli.Kubeconfig) (*cluster.State, error) {
	reader, err := cluster.Connect(of)
	if own, ok := errors.AsType[*cli.ExitError](err); ok {
		return nil, errors.New(own.Message)
	}
	if err != nil {
		return nil, err
	}
	return reader.Read(ctx, cluster.Options{Namespace: of.Overrides.Context.Namespace})
}

// add adds the operators of a cluster.
func (r *report) add(name string, s *snapshot.Snapshot, namespace string, notes []string) {
	r.Clusters = append(r.Clusters, &reported{Name: name, Notes: append([]string{}, notes...)})
	for _, o := range operators(s, namespace, r.Generated) {
		o.Cluster = name
		r.Operators = append(r.Operators, o)
	}
}

// title is the heading of a report.
func (r *report) title() string {
	return fmt.Sprintf("%s on %s", text.Count(len(r.Operators), "operator"), text.Count(len(r.Clusters), "cluster"))
}
