// Command mutation checks that a test fails for each rule whose judge allows.
package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/opgate/opgate/e2e/assets/repo"
	"github.com/opgate/opgate/tools/cli"
	"github.com/opgate/opgate/tools/mutation"
)

func main() { os.Exit(cli.Run(context.Background(), newCommand())) }

func newCommand() *cobra.Command {
	var only []string
	var timeout time.Duration
	var parallel int
	cmd := &cobra.Command{
		Use:   "mutation [--rule=ID]...",
		Short: "Check that a test fails for each rule whose judge allows",
		Long: `Replace, for one rule after the other, its judge by one that allows, run the tests of rules, of the packages
below it and of admission until one fails, and fail if none does. The tests are compiled once, with an overlay
("go test -overlay"): the environment selects the rule that allows, and no file of the repository is changed.

Of a rule that refuses, only refusals are dropped: that its warnings are tested is not enough.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			checkout, err := repo.Find()
			if err != nil {
				return err
			}
			mutants, err := mutation.Mutants(only)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeoutCause(cmd.Context(), timeout, fmt.Errorf("not done within %s", timeout))
			defer cancel()
			return mutation.Check(ctx, mutation.Options{
				Root: checkout.Root, Mutants: mutants, Parallel: parallel, Out: cmd.OutOrStdout()})
		},
	}
	cmd.Flags().StringSliceVar(&only, "rule", nil,
		"`IDs` of the rules to check, such as bundle/version,bundle/channel (all)")
	cmd.Flags().DurationVar(&timeout, "timeout", 45*time.Minute, "time after which the command fails")
	cmd.Flags().IntVar(&parallel, "parallel", runtime.NumCPU(), "number of test binaries that run at once")
	return cmd
}
