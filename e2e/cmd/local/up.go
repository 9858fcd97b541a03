package main

import (
	"github.com/spf13/cobra"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/local"
)

// runCommandName is the hidden command that "up" leaves in the background.
const runCommandName = "run"

func newUpCommand() *cobra.Command {
	var options gateFlags
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start it in the background",
		Long: `Start an API server with Opgate in front of it in the background, and return when it is ready.

Everything is kept in .local of the repository: a kubeconfig with the contexts admin, tenant and olm, bin/kubectl, and logs.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return local.Up(cmd.Context(), cmd.OutOrStdout(), append([]string{runCommandName}, options.args()...)...)
		},
	}
	options.bind(cmd)
	return cmd
}

func newRunCommand() *cobra.Command {
	var options gateFlags
	cmd := &cobra.Command{
		Use:    runCommandName,
		Short:  "Be the background process of up",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return local.Run(cmd.Context(), cmd.OutOrStdout(), options.gateOptions())
		},
	}
	options.bind(cmd)
	return cmd
}

// gateFlags are the flags of commands that start Opgate.
type gateFlags struct {
	binary string
}

func (f *gateFlags) bind(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.binary, "opgate", "", "`path` of an opgate binary to run instead of building one from this checkout")
}

// args are the flags as another command takes them.
func (f *gateFlags) args() []string { return []string{"--opgate=" + f.binary} }

func (f *gateFlags) gateOptions() cluster.GateOptions { return cluster.GateOptions{Binary: f.binary} }
