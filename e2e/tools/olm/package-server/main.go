// Command package-server is OLM's package server for a cluster without pods.
//
// OLM's own command asks the API server who may do what by the service account that lies in the file system of a pod, whatever
// kubeconfig it is given, and waits for ever where there is none. Here it asks nobody: it listens on the loopback interface
// alone, and what comes by way of the API server has been authorized there.
package main

import (
	"fmt"
	"os"

	"github.com/operator-framework/operator-lifecycle-manager/pkg/lib/signals"
	"github.com/operator-framework/operator-lifecycle-manager/pkg/package-server/server"
)

func main() {
	options := server.NewPackageServerOptions(os.Stdout, os.Stderr)
	options.DisableAuthForTesting = true
	if err := server.NewCommandStartPackageServer(signals.Context(), options).Execute(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
