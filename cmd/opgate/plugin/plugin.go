// Package plugin is the commands that look at a cluster, which as kubectl-opgate are those of a kubectl plugin:
// pending, why, tree and impact. They judge by package rules over the objects of the cluster, as the gate
// does, and write nothing.
package plugin

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

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
	namespace  string
	// all is --all-namespaces, which is what is looked at without a namespace.
	all    bool
	output string
}

// Commands returns the commands. now is the clock that ages are read from.
func Commands(now func() time.Time) []*cobra.Command {
	return []*cobra.Command{pendingCommand(now), whyCommand(now), treeCommand(), impactCommand()}
}

// register adds the flags of a command, with the output formats that it has; "" stands for its own.
func (o *options) register(cmd *cobra.Command, formats ...string) {
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return o.usage(cmd, "%v", err) })
	flags := cmd.Flags()
	flags.SortFlags = false
	paths := []string{formatJSONPath, formatCustomColumns}
	flags.StringVarP(&o.output, "output", "o", "", "output format: "+
		strings.Join(append(formats, "jsonpath=...", "custom-columns=..."), ", ")+" (default: text)")
	o.kubeconfig.Register(cmd)
	cli.Complete(cmd, "output", append(formats, paths...))
	arguments := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if err := arguments(cmd, args); err != nil {
			return o.usage(cmd, "%v", err)
		}
		return nil
	}
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if o.output != "" && !slices.Contains(formats, o.output) && !isData(o.output) {
			return o.usage(cmd, "unknown output format %q: use %s, jsonpath=TEMPLATE or custom-columns=HEADER:PATH,..., or leave it out", o.output,
				strings.Join(formats, ", "))
		}
		if err := checkPaths(o.output); err != nil {
			return o.usage(cmd, "-o %v", err)
		}
		if o.all && o.namespace != "" {
			return o.usage(cmd, "-A looks at all namespaces, and -n at one: leave out one of them")
		}
		if problems := validation.IsDNS1123Label(o.namespace); o.namespace != "" && len(problems) > 0 {
			return o.usage(cmd, "namespace %q: %s", o.namespace, strings.Join(problems, "; "))
		}
		return run(cmd, args)
	}
}

// registerNamespace adds the flag that restricts a command to a namespace.
func (o *options) registerNamespace(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&o.namespace, "namespace", "n", "", "namespace to look at (default: all)")
	cmd.Flags().BoolVarP(&o.all, "all-namespaces", "A", false, "look at all namespaces, as without -n")
	cli.CompleteFunc(cmd, "namespace", completeNamespaces)
}

// noArguments returns an error for an argument, which would be a namespace: it names the flag.
func noArguments(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unexpected argument %s: a namespace is named by -n", text.Quote(args[0]))
	}
	return nil
}

func (o *options) usage(cmd *cobra.Command, format string, args ...any) error {
	return cli.Usage(cmd, format, args...)
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

// colored reports whether to print in colors.
func colored(out io.Writer) bool { return cli.Colors(out, os.Getenv) }
