// Command opgate-server is the admission gate: what the image runs.
package main

import (
	// Templates may name time zones; an image need not have them, and without them a zone would silently mean UTC.
	_ "time/tzdata"

	"github.com/spf13/cobra"

	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/cmd/opgate/verify"
)

// version is set by the build: -ldflags "-X main.version=v0.1.0".
var version string

func main() { cli.Main(root()) }

func root() *cobra.Command {
	cmd := cli.Program(&cobra.Command{
		Use:   "opgate-server",
		Short: "An admission gate for operators installed by the Operator Lifecycle Manager",
		Long: `opgate-server decides, when an object is written, whether an operator may be subscribed to, installed or
upgraded.

"opgate-server serve" answers the API server's admission reviews; "opgate-server verify" tests that a cluster's
gate works. Commands such as "check" and "approve" are those of another program: opgate.`,
	}, version)
	cmd.AddCommand(serveCommand(), verify.Command(cmd.Name()))
	return cmd
}
