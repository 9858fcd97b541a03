// Command local runs a Kubernetes API server with Opgate in front of it on this machine: in the background, or for a demo.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	os.Exit(run())
}

func run() int {
	// The second signal ends the program at once: Ctrl-C twice is for those who cannot wait for the clean-up.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)

	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return 1
	}
	return 0
}

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "local",
		Short: "Run a Kubernetes API server with Opgate in front of it on this machine",
		Long: `Run a Kubernetes API server with Opgate in front of it on this machine, and OLM if --olm asks for it.

Nothing is needed but Go. kube-apiserver, etcd and kubectl are taken from the directory that KUBEBUILDER_ASSETS names, or
from setup-envtest if it is installed, or built from source once, which takes several minutes, and kept in the user's cache.
OLM is always built from source.`,
		// Errors are printed once, by run; usage is for those who ask.
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(newUpCommand(), newDownCommand(), newRunCommand(), newDemoCommand(), newAssetsCommand())
	return root
}
