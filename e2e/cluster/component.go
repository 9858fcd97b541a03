package cluster

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/opgate/opgate/e2e/assets/tail"
	"github.com/opgate/opgate/e2e/cluster/orphans"
	"github.com/opgate/opgate/e2e/internal/speed"
)

// Component is a process of the control plane.
type Component string

// Components of the control plane.
const (
	APIServer Component = "kube-apiserver"
	Etcd      Component = "etcd"
)

// SignalComponent sends a signal to a component, such as SIGSTOP or SIGCONT.
func (c *Cluster) SignalComponent(ctx context.Context, component Component, sig syscall.Signal) error {
	pid, _, err := c.componentProcess(ctx, component)
	if err == nil {
		err = syscall.Kill(pid, sig)
	}
	if err != nil {
		return fmt.Errorf("send %s to %s: %w", sig, component, err)
	}
	return nil
}

// KillComponent ends a component at once, as a crash would. StartComponent starts it again.
func (c *Cluster) KillComponent(ctx context.Context, component Component) error {
	pid, args, err := c.componentProcess(ctx, component)
	if err != nil {
		return fmt.Errorf("kill %s: %w", component, err)
	}
	c.mu.Lock()
	c.plane.arguments[component] = args
	restarted := c.plane.restarted[component]
	c.mu.Unlock()
	if restarted != nil {
		return restarted.kill()
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill %s: %w", component, err)
	}
	// Its arguments disappear before its ports are free, and envtest waits for it.
	err = speed.Poll(ctx, pollInterval, componentTimeout, func(context.Context) (bool, error) {
		return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH), nil
	})
	if err != nil {
		return fmt.Errorf("kill %s: %w", component, err)
	}
	return nil
}

// StartComponent starts a component that was killed, with the same arguments, and waits until the API server answers.
// Its log is added to.
func (c *Cluster) StartComponent(ctx context.Context, component Component) error {
	c.mu.Lock()
	args := c.plane.arguments[component]
	c.mu.Unlock()
	if len(args) == 0 {
		return fmt.Errorf("start %s: it was not killed", component)
	}
	p, err := startProcess(ctx, filepath.Join(c.dir, string(component)+".log"), args[0], args[1:]...)
	if err != nil {
		return fmt.Errorf("start %s: %w", component, err)
	}
	c.mu.Lock()
	c.plane.restarted[component] = p
	c.mu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-p.exited():
			cancel(fmt.Errorf("it exited with code %d; its log ends with\n%s", p.exitCode(),
				tail.File(p.log, logLines)))
		case <-ctx.Done():
		}
	}()
	if err := c.WaitForAPIServer(ctx); err != nil {
		return fmt.Errorf("start %s: %w", component, errors.Join(err, context.Cause(ctx)))
	}
	return nil
}

// WaitForAPIServer waits until the API server answers.
func (c *Cluster) WaitForAPIServer(ctx context.Context) error {
	var last error
	err := speed.Poll(ctx, pollInterval, componentTimeout,
		func(ctx context.Context) (bool, error) {
			ctx, cancel := context.WithTimeout(ctx, requestTimeout)
			defer cancel()
			last = c.masters.Get(ctx, client.ObjectKey{Name: OLMNamespace}, &corev1.Namespace{})
			return last == nil, nil
		})
	if err != nil {
		return fmt.Errorf("wait for the API server: %w", errors.Join(err, last))
	}
	return nil
}

// componentProcess returns the process of a component, and its command line.
func (c *Cluster) componentProcess(ctx context.Context, component Component) (pid int, args []string, err error) {
	found, err := orphans.Find(ctx, c.dir, string(component))
	if err != nil {
		return 0, nil, err
	}
	for pid, args := range found {
		return pid, args, nil
	}
	return 0, nil, errors.New("it does not run")
}

// Compact makes etcd forget all earlier states: watches that are behind begin anew.
func (c *Cluster) Compact(ctx context.Context) error {
	var state struct {
		Header struct {
			Revision string `json:"revision"`
		} `json:"header"`
	}
	if err := c.etcd(ctx, "range", map[string]any{"key": []byte("compact")}, &state); err != nil {
		return err
	}
	return c.etcd(ctx, "compaction", map[string]any{"revision": state.Header.Revision, "physical": true}, nil)
}

// EditStored changes a policy in etcd, which no webhook judges and no schema restricts.
func (c *Cluster) EditStored(
	ctx context.Context, namespace, name string, edit func(stored []byte) ([]byte, error),
) error {
	key := []byte(policyKeys + namespace + "/" + name)
	var content stored
	if err := c.etcd(ctx, "range", map[string]any{"key": key}, &content); err != nil {
		return err
	}
	if len(content.KVs) != 1 {
		return fmt.Errorf("etcd has %d values of %s", len(content.KVs), key)
	}
	value, err := edit(content.KVs[0].Value)
	if err != nil {
		return err
	}
	return c.etcd(ctx, "put", map[string]any{"key": key, "value": value}, nil)
}
