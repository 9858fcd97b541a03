// Package cli runs the commands of the modules tools and bench.
package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// Run runs a command with the arguments of the process and returns the exit code. The command's context ends with the
// first signal; the second ends the process at once, without the cleanup.
//
// Errors are printed here, once, without usage.
func Run(ctx context.Context, root *cobra.Command) int {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)

	root.SilenceErrors, root.SilenceUsage = true, true
	root.CompletionOptions.DisableDefaultCmd = true
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return 1
	}
	return 0
}

// WriteFile writes a file, unless there is no name for it.
func WriteFile(name string, content func(io.Writer) error) error {
	if name == "" {
		return nil
	}
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := content(file); err != nil {
		_ = file.Close()
		return err
	}
	return file.Close()
}
