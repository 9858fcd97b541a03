// Command package-server is OLM's package server for a cluster without pods.
//
// OLM's own command delegates authorization to the API server with the service account in the file system of a pod,
// whatever its kubeconfig, and waits for ever where there is none. Here it does not authorize: it listens on the
// loopback interface alone, and the API server has authorized the requests that it proxies.
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
