// Command opgate is an admission gate for operators that the Operator Lifecycle Manager installs.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	// Templates may name time zones; an image need not have them, and without them a zone would silently mean UTC.
	_ "time/tzdata"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/opgate/opgate/cmd/opgate/approve"
	"github.com/opgate/opgate/cmd/opgate/check"
	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/cmd/opgate/compile"
	"github.com/opgate/opgate/cmd/opgate/diff"
	"github.com/opgate/opgate/cmd/opgate/explain"
	"github.com/opgate/opgate/cmd/opgate/migrate"
	"github.com/opgate/opgate/cmd/opgate/plugin"
	"github.com/opgate/opgate/cmd/opgate/verify"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := root().ExecuteContext(ctx)
	stop()
	os.Exit(exitCode(err))
}

func root() *cobra.Command {
	// Libraries log to standard error, which belongs to what commands print. "opgate serve" sets its own logger.
	klog.SetLogger(logr.Discard())
	ctrl.SetLogger(logr.Discard())
	cmd := &cobra.Command{
		Use:   "opgate",
		Short: "An admission gate for operators installed by the Operator Lifecycle Manager",
		Long: `opgate decides, when an object is written, whether an operator may be subscribed to, installed or upgraded.

"opgate serve" answers the API server's admission reviews; "opgate check" judges manifests offline with the
same rules; "opgate pending" lists the plans that wait for approval, "opgate why" says what holds one, "opgate diff" shows what
it changes, and "opgate approve" approves it; "opgate history" shows what happened to an operator, and "opgate tree" what Policies
wait for; "opgate explain" says what a rule in a refusal means; "opgate
migrate" rewrites policies that are stored in an earlier version; "opgate compile" prints policies as admission
policies of the API server; "opgate verify" tests that a cluster's gate works. As kubectl-opgate in $PATH it is the
plugin "kubectl opgate", and as kubectl_complete-opgate what kubectl completes that plugin's arguments with.`,
		Version:       buildVersion(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	switch strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe") {
	case "kubectl-opgate":
		cmd.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl opgate"}
	case "kubectl_complete-opgate":
		cmd.SetArgs(append([]string{cobra.ShellCompRequestCmd}, os.Args[1:]...))
	}
	cmd.SetVersionTemplate("opgate {{.Version}}\n")
	width := cli.Width(os.Stdout)
	cmd.SetUsageTemplate(strings.ReplaceAll(cmd.UsageTemplate(), ".FlagUsages", fmt.Sprintf(".FlagUsagesWrapped %d", width)))
	cmd.AddCommand(serveCommand(), check.Command(), compile.Command(), migrate.Command(), explain.Command(), verify.Command(), versionCommand(), manCommand())
	cmd.AddCommand(plugin.Commands(time.Now)...)
	for _, ofPlan := range []*cobra.Command{diff.Command(), approve.Command()} {
		ofPlan.ValidArgsFunction = plugin.CompletePlans
		cmd.AddCommand(ofPlan)
	}
	return cmd
}

// exitCode prints an error and returns the exit code of the process: that of an error with a method ExitCode, as `opgate check`
// returns it (1 for a refusal, 2 for an unusable input or command line), else 1. An error without a message has been printed already.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if message := err.Error(); message != "" {
		fmt.Fprintln(os.Stderr, "opgate: "+message)
	}
	var coded interface{ ExitCode() int }
	if errors.As(err, &coded) {
		return coded.ExitCode()
	}
	return 1
}
