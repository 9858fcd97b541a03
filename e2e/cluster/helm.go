package cluster

import (
	"context"
	"fmt"

	"github.com/opgate/opgate/e2e/assets"
)

// Helm runs the real helm as Admin, in the working directory of this process. An exit code other than 0 is a result,
// not an error. Unless assets.FindHelm was asked before, the first call builds it, which takes minutes.
func (c *Cluster) Helm(ctx context.Context, args ...string) (Result, error) {
	return c.helm(ctx, assets.FindHelm, args)
}

// Helm3 is Helm with Helm 3.
func (c *Cluster) Helm3(ctx context.Context, args ...string) (Result, error) {
	return c.helm(ctx, assets.FindHelm3, args)
}

func (c *Cluster) helm(
	ctx context.Context, find func(context.Context, assets.Options) (string, error), args []string,
) (Result, error) {
	path, err := find(ctx, assets.Options{Log: c.log})
	if err != nil {
		return Result{}, fmt.Errorf("helm: %w", err)
	}
	result, err := c.execute(ctx, path, Command{
		Args: append([]string{"--kubeconfig", c.Kubeconfig(), "--kube-context", string(Admin)}, args...),
	})
	if err != nil {
		return result, fmt.Errorf("helm: %w", err)
	}
	return result, nil
}
