// Package plugin is the commands that look at a cluster, which as kubectl-opgate are those of a kubectl plugin:
// pending and why. They judge by package rules over the objects of the cluster, as the gate does, and write nothing.
package plugin

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/cmd/opgate/cluster"
	"github.com/opgate/opgate/internal/text"
)

// The exit codes of the commands.
const (
	exitRefused  = 1 // the object of why is held or refused
	exitUnusable = 2 // the command line cannot be used, or the cluster cannot be read
)

func unusable(format string, args ...any) error {
	return &cli.ExitError{Code: exitUnusable, Message: fmt.Sprintf(format, args...)}
}

// options are the flags that the commands share.
type options struct {
	kubeconfig cli.Kubeconfig
	// all is --all-namespaces.
	all bool
	// namespace is that of the flag, else that of the context; empty with all.
	namespace string
	output    output
}

// Commands returns the commands. now is the clock that ages are read from.
func Commands(now func() time.Time) []*cobra.Command {
	return []*cobra.Command{pendingCommand(now), whyCommand(now)}
}

// register adds the flags that name a cluster and a namespace, and those of the output, with the formats that the
// command has besides those of data.
func (o *options) register(cmd *cobra.Command, formats ...string) {
	o.output.register(cmd, formats...)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.Flags().SortFlags = false
	o.kubeconfig.RegisterNamespace(cmd)
	o.kubeconfig.Register(cmd)
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if err := o.output.complete(); err != nil {
			return cli.Usage(cmd, "-o: %v", err)
		}
		if o.all && o.kubeconfig.Overrides.Context.Namespace != "" {
			return cli.Usage(cmd, cli.AllOrOne)
		}
		if !o.all {
			if o.namespace, err = o.kubeconfig.Namespace(); err != nil {
				return err
			}
		}
		return run(cmd, args)
	}
}

// maxNotes bounds the warnings of what could not be read.
const maxNotes = 20

// read reads the cluster, and prints on standard error what could not be read.
func (o *options) read(ctx context.Context, stderr io.Writer, in cluster.Options) (*cluster.State, error) {
	reader, err := cluster.Connect(o.kubeconfig)
	if err != nil {
		return nil, unusable("%v", err)
	}
	state, err := reader.Read(ctx, in)
	if err != nil {
		return nil, &cli.ExitError{Code: exitUnusable, Message: text.Escape(err.Error()), Cause: err}
	}
	for _, note := range state.Notes[:min(len(state.Notes), maxNotes)] {
		fmt.Fprintln(stderr, "warning: "+text.Escape(note))
	}
	if more := len(state.Notes) - maxNotes; more > 0 {
		fmt.Fprintf(stderr, "warning: %d more could not be read\n", more)
	}
	return state, nil
}
