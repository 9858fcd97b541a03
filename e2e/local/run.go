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

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/internal/filelock"
)

// Run is the background process of Up: it runs the control plane and Opgate until ctx ends or Opgate does. Its own output
// goes to log, and to Up until it is ready.
func Run(ctx context.Context, log io.Writer, gateOptions cluster.GateOptions) (err error) {
	l, err := findLayout()
	if err != nil {
		return err
	}
	// Up reads until every copy of this descriptor is closed, so the processes started here must not have one.
	syscall.CloseOnExec(progressFD)
	progress := os.NewFile(progressFD, "progress")
	defer func() { _ = progress.Close() }()

	lock, err := filelock.TryAcquire(l.lock())
	if err != nil {
		return err
	}
	defer lock.Release()
	if err := lock.Note(strconv.Itoa(os.Getpid()) + "\n"); err != nil {
		return err
	}

	c, err := cluster.Start(ctx, cluster.Options{Dir: l.run(), Log: io.MultiWriter(log, progress)})
	if err != nil {
		return err
	}
	defer func() {
		fmt.Fprintln(log, "stopping")
		err = errors.Join(err, c.Stop())
	}()
	gate, err := c.StartOpgate(ctx, gateOptions)
	if err != nil {
		return err
	}
	if err := l.publish(c); err != nil {
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
	case <-gate.Exited():
		code, err := gate.Stop()
		return errors.Join(fmt.Errorf("opgate ended by itself with exit code %d", code), err)
	}
}

// publish puts what people need where it does not change from one start to the next.
func (l layout) publish(c *cluster.Cluster) error {
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
	return nil
}
