// Command suite runs the tests of a make target.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/opgate/opgate/e2e/assets/repo"
	"github.com/opgate/opgate/tools/suite"
)

const usage = `Usage: suite [--budget] TARGET [FLAGS OF GO TEST]

Runs the tests of a make target, states the CPU time by package and the most expensive tests, and runs a test with a cluster that failed
once more, alone. Logs are in bin/tests.

  --budget   fail if the target used more CPU time than its budget
`

func main() { os.Exit(run(context.Background(), os.Args[1:])) }

func run(ctx context.Context, args []string) int {
	if len(args) > 2 && args[0] == "measure" { // by go test, see suite.Runner.Self
		return suite.Measure(ctx, args[1], args[2:])
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := target(ctx, args)
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "interrupted")
		return 130
	case err != nil:
		fmt.Fprintln(os.Stderr, "error:", err)
		return 1
	}
	return 0
}

func target(ctx context.Context, args []string) error {
	enforce := len(args) > 0 && args[0] == "--budget"
	if enforce {
		args = args[1:]
	}
	if len(args) == 0 || args[0] == "--help" || args[0] == "-h" {
		fmt.Fprint(os.Stderr, usage)
		if len(args) == 0 {
			return errors.New("which target?")
		}
		return nil
	}
	chosen, err := suite.Find(args[0])
	if err != nil {
		return err
	}
	checkout, err := repo.Find()
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	runner := suite.Runner{Root: checkout.Root, Self: self, Flags: args[1:], Enforce: enforce, Log: os.Stdout}
	return runner.Run(ctx, chosen)
}
