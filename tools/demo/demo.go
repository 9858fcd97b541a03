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

	"github.com/opgate/opgate/e2e/assets"
	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/olm"
)

//go:embed *.yaml
var manifests embed.FS

// Options configure how Run runs. Out is required.
type Options struct {
	// Out receives the transcript, and the progress before it.
	Out io.Writer
	// Gate is a binary of opgate-server. Default: it is built.
	Gate string
	// OLM makes it the demo with a real OLM, where Opgate's background loop runs as well.
	OLM bool
}

// Run starts a control plane with Opgate, runs every step, and stops everything again. It fails at the first command
// that does not do what its step states it does.
func Run(ctx context.Context, opts Options) (err error) {
	all := steps()
	var binaries assets.OLM
	if opts.OLM {
		all = olmSteps()
		// Before anything runs: the first time this takes minutes.
		if binaries, err = assets.FindOLM(ctx, assets.Options{Log: opts.Out}); err != nil {
			return err
		}
	}
	plane, err := assets.Find(ctx, assets.Options{Log: opts.Out, AnyPatch: true})
	if err != nil {
		return err
	}
	c, err := cluster.Start(ctx, cluster.Options{
		Assets: plane, Programs: &cluster.Programs{Gate: opts.Gate}, ChartRights: true, Log: opts.Out,
	})
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, c.Stop())
	}()
	gate, err := c.StartOpgate(ctx, cluster.GateOptions{Loop: opts.OLM})
	if err != nil {
		return err
	}
	if opts.OLM {
		o, startErr := olm.Start(ctx, c, olm.Options{Assets: binaries, Packages: packages(), Log: opts.Out})
		if startErr != nil {
			return startErr
		}
		defer func() {
			err = errors.Join(err, o.Stop())
		}()
	}
	dir := filepath.Join(c.Dir(), "demo")
	if err := os.CopyFS(dir, manifests); err != nil {
		return fmt.Errorf("unpack the manifests: %w", err)
	}

	t := &transcript{out: opts.Out, cluster: c, gate: gate, dir: dir}
	for i, step := range all {
		if err := t.play(ctx, i+1, step); err != nil {
			return fmt.Errorf("step %d of %d (%s): %w", i+1, len(all), step.title, err)
		}
	}
	fmt.Fprintf(opts.Out, "\nAll %d steps went as they should.\n", len(all))
	return nil
}
