package main

import (
	"github.com/spf13/cobra"

	"github.com/opgate/opgate/tools/local"
)

func newDownCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "Stop what up started",
		Long:  `Stop what "up" started and remove what it left. It does no harm when nothing is up.`,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return local.Down(cmd.Context(), cmd.OutOrStdout())
		},
	}
}
