// Command local runs a Kubernetes API server with Opgate in front of it on this machine: in the background, or for a
// demo.
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
		Use:   "local",
		Short: "Run a Kubernetes API server with Opgate in front of it on this machine",
		Long: `Run a Kubernetes API server with Opgate in front of it on this machine, and OLM if --olm asks for it.

Nothing is needed but Go. kube-apiserver, etcd and kubectl are taken from the directory that KUBEBUILDER_ASSETS names, or
downloaded if what the Kubernetes project publishes for tests is in reach, or built from source once, which takes several
minutes, and kept in the user's cache. Tests take what is published only of the very version that they are meant for.
OLM is always built from source.`,
	}
	root.AddCommand(newUpCommand(), newDownCommand(), newRunCommand(), newDemoCommand(), newAssetsCommand())
	return root
}
