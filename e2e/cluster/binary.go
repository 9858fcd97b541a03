package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/opgate/opgate/e2e/assets/gotool"
	"github.com/opgate/opgate/e2e/assets/repo"
	"github.com/opgate/opgate/e2e/assets/stopwatch"
)

// BuildOpgate builds cmd/opgate of this checkout into a directory and returns the path of the binary. Log receives progress lines.
func BuildOpgate(ctx context.Context, dir string, log io.Writer) (string, error) {
	checkout, err := repo.Find()
	if err != nil {
		return "", err
	}
	watch := stopwatch.Start()
	fmt.Fprintln(log, "building opgate")
	binary := filepath.Join(dir, "opgate")
	// As in the image, except for its symbols, so that the two share the build cache.
	cmd := gotool.Command(ctx, checkout.Root, dir, "build", "-trimpath", "-o", binary, "./cmd/opgate")
	cmd.Env = append(cmd.Env, "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build opgate: %w\n%s", errors.Join(err, ctx.Err()), out)
	}
	fmt.Fprintf(log, "built opgate in %s\n", watch)
	return binary, nil
}

// Opgate is the path of the binary that BuildOpgate returns.
func (c *Cluster) Opgate() string {
	if c.opgate != "" {
		return c.opgate
	}
	return filepath.Join(c.dir, "opgate")
}

// BuildOpgate returns the binary that Options name, or else builds one for this cluster.
func (c *Cluster) BuildOpgate(ctx context.Context) (string, error) {
	if c.opgate != "" {
		return c.opgate, nil
	}
	return BuildOpgate(ctx, c.dir, c.log)
}
