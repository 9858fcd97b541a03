// Package demo shows on a real API server, with real kubectl commands, what Opgate refuses and what it allows.
package demo

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/opgate/opgate/e2e/cluster"
)

//go:embed *.yaml
var manifests embed.FS

// Options says how Run runs. Out is required.
type Options struct {
	// Out receives the transcript, and the progress before it.
	Out io.Writer
	// Gate says how Opgate is started.
	Gate cluster.GateOptions
}

// Run starts a control plane with Opgate, runs every step, and stops everything again. It fails at the first command that
// does not do what its step says it does.
func Run(ctx context.Context, opts Options) (err error) {
	c, err := cluster.Start(ctx, cluster.Options{Log: opts.Out})
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, c.Stop())
	}()
	gate, err := c.StartOpgate(ctx, opts.Gate)
	if err != nil {
		return err
	}
	dir := filepath.Join(c.Dir(), "demo")
	if err := os.CopyFS(dir, manifests); err != nil {
		return fmt.Errorf("unpack the manifests: %w", err)
	}

	t := &transcript{out: opts.Out, cluster: c, gate: gate, dir: dir}
	all := steps()
	for i, step := range all {
		if err := t.play(ctx, i+1, step); err != nil {
			return fmt.Errorf("step %d of %d (%s): %w", i+1, len(all), step.title, err)
		}
	}
	fmt.Fprintf(opts.Out, "\nAll %d steps went as they should.\n", len(all))
	return nil
}
