// Command render makes the plain manifests, and the documentation of values, from the Helm chart, and the reference of
// fields from the definitions, and draws the recorded terminal of docs/lockfile.md. "make generate" runs it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/opgate/opgate/e2e/assets"
	"github.com/opgate/opgate/e2e/assets/repo"
	"github.com/opgate/opgate/tools/chart"
	"github.com/opgate/opgate/tools/reference"
	"github.com/opgate/opgate/tools/terminal"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	checkout, err := repo.Find()
	if err != nil {
		return err
	}
	helm, err := assets.FindHelm(ctx, assets.Options{Log: os.Stderr})
	if err != nil {
		return err
	}
	if err := chart.Write(ctx, helm, checkout); err != nil {
		return err
	}
	if err := terminal.Write(checkout.Root); err != nil {
		return err
	}
	return reference.Write(checkout.Root)
}
