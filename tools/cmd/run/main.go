// Command run is "go run" for a program whose libraries take minutes to compile the first time: it shows how far that
// is, and keeps the program in a file. It imports little, so that it is compiled soon itself.
//
// Usage: go run -trimpath ./cmd/run OUTPUT PACKAGE [ARGUMENT...]
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/opgate/opgate/e2e/assets/progress"
	"github.com/opgate/opgate/e2e/assets/stopwatch"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: run OUTPUT PACKAGE [ARGUMENT...]")
		os.Exit(2)
	}
	if err := run(context.Background(), os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run builds the program and becomes it.
func run(ctx context.Context, output, path string, args []string) error {
	output, err := filepath.Abs(output)
	if err != nil {
		return err
	}
	command := func(args ...string) *exec.Cmd { return exec.CommandContext(ctx, "go", args...) }
	watch, far := stopwatch.Start(), progress.Plan(command, []string{"-trimpath"}, path)
	far.Log = os.Stderr
	show := func() {
		if state := far.String(); state != "" {
			fmt.Fprintf(os.Stderr, "compiling %s: %s%s\n", filepath.Base(path), watch, state)
		}
	}
	if err := far.Run(ctx, command("build", "-v", "-trimpath", "-o", output, path), show); err != nil {
		return fmt.Errorf("build %s: %w", path, err)
	}
	return syscall.Exec(output, append([]string{output}, args...), os.Environ())
}
