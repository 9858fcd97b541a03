package main

import (
	"github.com/spf13/cobra"

	"github.com/opgate/opgate/tools/demo"
)

func newDemoCommand() *cobra.Command {
	var options startFlags
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show what Opgate refuses, and what it allows",
		Long: `Start an API server with Opgate in front of it, and show with real kubectl commands what is refused and what is allowed.
With --olm, start OLM as well and show how a policy alone has an operator installed, its upgrade held, and then let through;
"make demo OLM=1" is the same.

The demo ends by itself and leaves nothing behind. It fails when a command does not do what the demo says it does.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return demo.Run(cmd.Context(), demo.Options{
				Out:  cmd.OutOrStdout(),
				Gate: options.binary,
				OLM:  options.olm,
			})
		},
	}
	options.bind(cmd)
	return cmd
}
