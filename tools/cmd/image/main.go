// Command image builds Opgate's container image without a container engine, and lists what is in it.
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
		Use:   "image",
		Short: "Build Opgate's container image without a container engine",
	}
	root.AddCommand(newBuildCommand(), newSBOMCommand())
	return root
}
