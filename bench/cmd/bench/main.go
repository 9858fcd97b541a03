// Command bench measures what a review costs Opgate and servers that do less, and prints which goals are met. "make
// bench" runs it.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/opgate/opgate/bench/bench"
	"github.com/opgate/opgate/tools/cli"
)

func main() { os.Exit(cli.Run(context.Background(), newCommand())) }

func newCommand() *cobra.Command {
	o := bench.Options{Now: time.Now}
	var jsonFile, profiles string
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure what a review costs, and print which goals are met",
		Long: `Measure what a review costs Opgate, relative to servers that do less, and print which goals are met.

Each server is a process of its own and is called over TLS, as an API server calls webhooks: one that answers without looking
("` + "TLS echo" + `"), a webhook of controller-runtime that allows everything ("empty webhook"), one that decodes the objects into OLM's
types as well ("typed decode"), and Opgate with few and many policies, in a snapshot without an API server. They take turns in rounds,
in random order. A goal is met where the whole 95% interval over the rounds is.`,
		Example: "  go run ./cmd/bench --rounds=9 --sizes=S,M --json=report.json",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			program, err := os.Executable()
			if err != nil {
				return err
			}
			o.Program = []string{program, "serve", "--cpu-profiles=" + profiles}
			o.Progress = func(round, of int) { fmt.Fprintf(c.ErrOrStderr(), "round %d of %d\n", round, of) }
			report, err := bench.Run(c.Context(), o)
			if err != nil {
				return err
			}
			if err := report.Table(c.OutOrStdout()); err != nil {
				return err
			}
			return cli.WriteFile(jsonFile, report.JSON)
		},
	}
	c.Flags().IntVar(&o.Rounds, "rounds", 7, "how often each server has its turn; intervals need two")
	c.Flags().StringSliceVar(&o.Sizes, "sizes", bench.SizeNames(), "sizes to measure, of "+
		strings.Join(bench.SizeNames(), ", "))
	c.Flags().IntSliceVar(&o.Policies, "policies", []int{1, 1_000, 10_000},
		"numbers of policies; the first and the last are compared")
	c.Flags().IntVar(&o.Reviews, "reviews", 0,
		"reviews in a turn, one after another and again at a rate (default: as each size needs)")
	c.Flags().Uint64Var(&o.Seed, "seed", 1, "seed of the order of turns")
	c.Flags().StringVar(&o.Revision, "revision", "", "what is measured, for the report")
	c.Flags().StringVar(&jsonFile, "json", "", "file to write the report to as JSON")
	c.PersistentFlags().StringVar(&profiles, "cpu-profiles", "",
		"directory to write a CPU profile of each server to, for \"go tool pprof\"")
	c.AddCommand(&cobra.Command{
		Use: "serve FLOOR|POLICIES", Short: "Be one of the servers", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return profiled(profiles, args[0],
				func() error { return bench.Serve(c.Context(), args, c.InOrStdin(), c.OutOrStdout()) })
		},
	})
	return c
}

// profiled writes a CPU profile of what runs, unless there is no directory for it.
func profiled(directory, name string, run func() error) error {
	if directory == "" {
		return run()
	}
	return cli.WriteFile(filepath.Join(directory, strings.ReplaceAll(name, " ", "-")+".pprof"),
		func(w io.Writer) error {
			if err := pprof.StartCPUProfile(w); err != nil {
				return err
			}
			defer pprof.StopCPUProfile()
			return run()
		})
}
