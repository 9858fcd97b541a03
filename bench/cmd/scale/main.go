// Command scale measures Opgate on real API servers with many namespaces, and prints a table. "make scale" runs it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/opgate/opgate/bench/scale"
	"github.com/opgate/opgate/tools/cli"
)

func main() { os.Exit(cli.Run(context.Background(), newCommand())) }

func newCommand() *cobra.Command {
	o := scale.Options{Now: time.Now}
	var memory uint64
	var jsonFile, svgFile string
	c := &cobra.Command{
		Use:   "scale",
		Short: "Measure Opgate with many namespaces, and print a table",
		Long: `Measure Opgate with many namespaces, and print a table.

Each number of namespaces has a kube-apiserver and an etcd of its own, and the process of Opgate. Each namespace has an OperatorGroup, a
Subscription and a plan that requires approval, as OLM writes them; OLM itself does not run. Then policies are created, policies are
edited, with a second replica, and plans require approval, all at once.`,
		Example: "  go run ./cmd/scale --namespaces=100,1000 --json=report.json --svg=plot.svg",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			o.MemoryLimit = memory << 20
			o.Progress = func(line string) { fmt.Fprintln(c.ErrOrStderr(), o.Now().Format(time.TimeOnly), line) }
			report, err := scale.Run(c.Context(), o)
			if report == nil {
				return err
			}
			return errors.Join(err, report.Table(c.OutOrStdout()), cli.WriteFile(jsonFile, report.JSON),
				cli.WriteFile(svgFile, report.SVG))
		},
	}
	c.Flags().IntSliceVar(&o.Namespaces, "namespaces", []int{100, 1_000, 10_000}, "numbers of namespaces to measure")
	c.Flags().IntVar(&o.Edits, "edits", 200, "policies to edit")
	c.Flags().IntVar(&o.Events, "events", 1_000, "writes of OLM to measure what an event costs")
	c.Flags().IntVar(&o.Approvals, "approvals", 1_000,
		"plans that require approval at once, at most one in a namespace")
	c.Flags().DurationVar(&o.Rest, "rest", 30*time.Second, "how long CPU time at rest is measured")
	c.Flags().DurationVar(&o.Quiet, "settled", 10*time.Second,
		"how long Opgate has sent no request when it counts as idle")
	c.Flags().Uint64Var(&memory, "memory-limit", 512,
		"memory limit of each replica in MiB, as in the chart; 0 for none")
	c.Flags().StringVar(&o.Backstop, "backstop", "enforce",
		"mode of the backstop, as in the chart: enforce, audit or off")
	c.Flags().StringVar(&o.Server, "server", "", "opgate-server to measure (default: one that is built)")
	c.Flags().StringVar(&o.Revision, "revision", "", "what is measured, for the report")
	c.Flags().StringVar(&jsonFile, "json", "", "file to write the report to as JSON")
	c.Flags().StringVar(&svgFile, "svg", "", "file to write plots to")
	return c
}
