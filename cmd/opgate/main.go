// Command opgate judges operators that the Operator Lifecycle Manager installs, in files and on clusters. It is a
// plugin of kubectl as well.
package main

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	// Templates may name time zones; a machine need not have them, and without them a zone would silently mean UTC.
	_ "time/tzdata"

	"github.com/spf13/cobra"

	"github.com/opgate/opgate/cmd/opgate/adopt"
	"github.com/opgate/opgate/cmd/opgate/approve"
	"github.com/opgate/opgate/cmd/opgate/check"
	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/cmd/opgate/compile"
	"github.com/opgate/opgate/cmd/opgate/diff"
	"github.com/opgate/opgate/cmd/opgate/explain"
	"github.com/opgate/opgate/cmd/opgate/plan"
	"github.com/opgate/opgate/cmd/opgate/plugin"
	"github.com/opgate/opgate/cmd/opgate/report"
	"github.com/opgate/opgate/cmd/opgate/suggest"
	"github.com/opgate/opgate/cmd/opgate/test"
	"github.com/opgate/opgate/cmd/opgate/verify"
)

// version is set by the build: -ldflags "-X main.version=v0.1.0".
var version string

func main() { cli.Main(root()) }

func root() *cobra.Command {
	cmd := cli.Program(&cobra.Command{
		Use:   "opgate",
		Short: "Judge operators that the Operator Lifecycle Manager installs, in files and on clusters",
		Long: `opgate answers whether an operator may be subscribed to, installed or upgraded, and why.

As kubectl-opgate in $PATH it is the plugin "kubectl opgate", and as kubectl_complete-opgate what kubectl completes
that plugin's arguments with.

The gate itself, which answers the API server's admission reviews, is a program of its own: opgate-server.`,
		Annotations: map[string]string{cli.Interruptible: "true"},
	}, version)
	switch strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe") {
	case "kubectl-opgate":
		cmd.Annotations[cobra.CommandDisplayNameAnnotation] = "kubectl opgate"
	case "kubectl_complete-opgate":
		cmd.SetArgs(append([]string{cobra.ShellCompRequestCmd}, os.Args[1:]...))
	}
	group(cmd, "Judge files:", check.Command(time.Now), test.Command(), explain.Command())
	group(cmd, "Look at a cluster:", append(plugin.Commands(time.Now), diff.Command(), plan.Command(time.Now), report.Command(time.Now))...)
	group(cmd, "Keep policies in git:", adopt.Command(time.Now), suggest.Command(time.Now))
	group(cmd, "Act:", approve.Command(time.Now))
	group(cmd, "Set up:", compile.Command(time.Now), verify.Command(cmd.Name()))
	return cmd
}

// group adds commands below a title of the help.
func group(root *cobra.Command, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: title, Title: title})
	for _, cmd := range commands {
		cmd.GroupID = title
	}
	root.AddCommand(commands...)
}
