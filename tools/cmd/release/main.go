// Command release builds, signs, pushes and verifies releases of Opgate.
package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/opgate/opgate/tools/cli"
)

func main() { os.Exit(cli.Run(context.Background(), newCommand())) }

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "release",
		Short: "Build, sign, push and verify releases of Opgate",
	}
	root.AddCommand(newBuildCommand(), newPushCommand(), newVerifyCommand())
	return root
}
