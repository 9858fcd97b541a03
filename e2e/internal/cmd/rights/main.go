// Command rights checks that the tests made Opgate use every right that it is shipped with. "make test-e2e" runs it
// with the directory in which all of them recorded what was used.
package main

import (
	"fmt"
	"os"

	"github.com/opgate/opgate/e2e/internal/rights"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: rights DIRECTORY")
	}
	used, err := rights.Load(args[0])
	if err != nil {
		return err
	}
	unused, err := rights.UnusedShipped(used)
	if err != nil {
		return err
	}
	if len(unused) > 0 {
		return fmt.Errorf("no test made opgate use these rights that it is shipped with: %v", unused)
	}
	return nil
}
