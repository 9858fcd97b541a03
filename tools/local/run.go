package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/opgate/opgate/e2e/assets"
	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/olm"
)

// Options configure Run. The zero value is useful.
type Options struct {
	// Gate is a binary of opgate-server. Default: it is built.
	Gate string
	// OLM is whether OLM runs as well, with a catalog.
	OLM bool
}

// Run is the background process of Up: it runs the control plane, Opgate and what else there is until ctx ends or one
// of them does. Its own output goes to log, and to Up until it is ready.
func Run(ctx context.Context, log io.Writer, opts Options) (err error) {
	l, err := findLayout()
	if err != nil {
		return err
	}
	// Up reads until every copy of this descriptor is closed, so the processes started here must not have one.
	syscall.CloseOnExec(progressFD)
	progress := os.NewFile(progressFD, "progress")
	defer func() { _ = progress.Close() }()

	lock, held, err := l.tryLock()
	switch {
	case err != nil:
		return err
	case held:
		return fmt.Errorf("lock %s is held by another process", l.lock())
	}
	defer func() { _ = lock.Close() }()
	if err := os.WriteFile(l.lock(), []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600); err != nil {
		return fmt.Errorf("write lock file: %w", err)
	}

	out := io.MultiWriter(log, progress)
	var binaries assets.OLM
	if opts.OLM {
		// Before anything runs: the first time this takes minutes.
		if binaries, err = assets.FindOLM(ctx, assets.Options{Log: out}); err != nil {
			return err
		}
	}
	plane, err := assets.Find(ctx, assets.Options{Log: out, AnyPatch: true})
	if err != nil {
		return err
	}
	programs := &cluster.Programs{Gate: opts.Gate}
	c, err := cluster.Start(ctx, cluster.Options{Assets: plane, Dir: l.run(), Programs: programs, ChartRights: true,
		Log: out})
	if err != nil {
		return err
	}
	defer func() {
		fmt.Fprintln(log, "stopping")
		err = errors.Join(err, c.Stop())
	}()
	gate, err := c.StartOpgate(ctx, cluster.GateOptions{Loop: true})
	if err != nil {
		return err
	}
	if _, err := programs.Opgate(ctx); err != nil {
		return err
	}
	ended := make(chan error, 1)
	if opts.OLM {
		o, startErr := olm.Start(ctx, c, olm.Options{Assets: binaries, Log: out})
		if startErr != nil {
			return startErr
		}
		defer func() { err = errors.Join(err, o.Stop()) }()
		go func() { ended <- o.Wait(ctx) }()
	}
	if err := l.publish(c, opts.OLM); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(progress, ready); err != nil {
		return fmt.Errorf("say that it is up: %w", err)
	}
	if err := progress.Close(); err != nil {
		return fmt.Errorf("say that it is up: %w", err)
	}

	select {
	case <-ctx.Done():
		return nil
	case err := <-ended:
		return err
	case <-gate.Exited():
		code, err := gate.Stop()
		return errors.Join(fmt.Errorf("opgate ended by itself with exit code %d", code), err)
	}
}

// publish puts what people need where it does not change from one start to the next.
func (l layout) publish(c *cluster.Cluster, withOLM bool) error {
	kubeconfig, err := os.ReadFile(c.Kubeconfig())
	if err != nil {
		return fmt.Errorf("publish the kubeconfig: %w", err)
	}
	if err := os.WriteFile(l.kubeconfig(), kubeconfig, 0o600); err != nil {
		return fmt.Errorf("publish the kubeconfig: %w", err)
	}
	if err := os.MkdirAll(l.bin(), 0o750); err != nil {
		return fmt.Errorf("publish kubectl: %w", err)
	}
	kubectl, err := filepath.Abs(c.Assets().Kubectl())
	if err != nil {
		return fmt.Errorf("publish kubectl: %w", err)
	}
	if err := os.Symlink(kubectl, filepath.Join(l.bin(), "kubectl")); err != nil {
		return fmt.Errorf("publish kubectl: %w", err)
	}
	if withOLM {
		if err := os.WriteFile(l.example(), example, 0o600); err != nil {
			return fmt.Errorf("publish an example: %w", err)
		}
	}
	if err := os.WriteFile(l.next(), []byte(l.nextSteps(withOLM)), 0o600); err != nil {
		return fmt.Errorf("publish what to do next: %w", err)
	}
	return nil
}
