// Package mutation replaces the judge of a rule by one that allows, and reports whether a test fails.
package mutation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/opgate/opgate/e2e/assets/stopwatch"
)

// Options are those of Check.
type Options struct {
	// Root is the directory of the repository.
	Root string
	// Mutants are those to check.
	Mutants []string
	// Parallel is the number of test binaries that run at once.
	Parallel int
	// Out receives a line for each mutant.
	Out io.Writer
}

// Check returns an error if the tests fail as they are, or if no test fails for one of the mutants.
func Check(ctx context.Context, o Options) error {
	watch := stopwatch.Start()
	dir, err := os.MkdirTemp("", "opgate-mutation-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // the system cleans up what is left
	tests, err := compile(ctx, o.Root, dir)
	if err != nil {
		return err
	}
	fmt.Fprintf(o.Out, "tests compiled after %s\n", watch)
	if err := tests.pass(ctx, o.Parallel); err != nil {
		return err
	}
	fmt.Fprintf(o.Out, "tests passed without a mutation after %s\n", watch)

	const row = "%-36s %-9s %8v  %s\n"
	fmt.Fprintf(o.Out, row, "RULE AND PLACE", "RESULT", "REACHED", "FAILED TEST")
	var alive []string
	var errs []error
	tests.mutants(ctx, o.Mutants, o.Parallel, func(m *mutant) {
		fmt.Fprintf(o.Out, row, m.name, m.result(), m.reached, m.failed)
		switch {
		case m.err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", m.name, m.err))
		case m.failed == "":
			alive = append(alive, m.name)
		}
	})
	fmt.Fprintf(o.Out, "%d mutants checked after %s\n", len(o.Mutants), watch)
	if len(alive) > 0 {
		errs = append(errs, fmt.Errorf("no test fails without %s", strings.Join(alive, ", ")))
	}
	return errors.Join(errs...)
}
