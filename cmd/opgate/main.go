// Command opgate is an admission gate for operators that the Operator Lifecycle Manager installs.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	// Templates may name time zones; an image need not have them, and without them a zone would silently mean UTC.
	_ "time/tzdata"

	"github.com/spf13/cobra"

	"github.com/opgate/opgate/cmd/opgate/check"
	"github.com/opgate/opgate/cmd/opgate/migrate"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := root().ExecuteContext(ctx)
	stop()
	os.Exit(exitCode(err))
}

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "opgate",
		Short: "An admission gate for operators installed by the Operator Lifecycle Manager",
		Long: `opgate decides, when an object is written, whether an operator may be subscribed to, installed or upgraded.

"opgate serve" answers the API server's admission reviews; "opgate check" judges manifests offline with the
same rules; "opgate explain" says what a rule in a refusal means; "opgate migrate" rewrites policies that are
stored in an earlier version.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.AddCommand(serveCommand(), check.Command(), migrate.Command(), explainCommand(), versionCommand())
	return cmd
}

// exitCode reports an error and turns it into the process's exit code: an error may carry its own, and then
// has been reported; others are 2 for `check`-like usage and 1 elsewhere.
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
