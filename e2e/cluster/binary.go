package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"

	"github.com/opgate/opgate/e2e/assets/gotool"
	"github.com/opgate/opgate/e2e/assets/repo"
	"github.com/opgate/opgate/e2e/assets/stopwatch"
)

// ProgramsVariable is the environment variable with a directory that has the programs of this checkout, so that each
// package of tests does not link them again. Without it they are built.
const ProgramsVariable = "OPGATE_E2E_PROGRAMS"

// Programs are the two programs of this checkout, each built when it is first needed. The zero value is usable.
type Programs struct {
	// Built is a directory that has both already. Default: they are built.
	Built string
	// Dir is the directory that they are built into. Default: that of the cluster.
	Dir string
	// Gate is the binary of opgate-server. Default: it is built.
	Gate string
	// Log receives progress lines. Default: that of the cluster.
	Log io.Writer

	mu    sync.Mutex
	built map[string]string
}

// Server returns the binary of opgate-server: the gate.
func (p *Programs) Server(ctx context.Context) (string, error) {
	if p.Gate != "" {
		return p.Gate, nil
	}
	return p.build(ctx, "opgate-server")
}

// Opgate returns the binary of opgate: the commands, and the plugin.
func (p *Programs) Opgate(ctx context.Context) (string, error) { return p.build(ctx, "opgate") }

func (p *Programs) setDefaults(dir string, log io.Writer) {
	if p.Dir == "" {
		p.Dir = dir
	}
	if p.Log == nil {
		p.Log = log
	}
}

func (p *Programs) build(ctx context.Context, name string) (string, error) {
	if p.Built != "" {
		return filepath.Join(p.Built, name), nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if binary := p.built[name]; binary != "" {
		return binary, nil
	}
	checkout, err := repo.Find()
	if err != nil {
		return "", err
	}
	watch := stopwatch.Start()
	fmt.Fprintln(p.Log, "building "+name)
	binary := filepath.Join(p.Dir, name)
	// As in the image, so that the two share the build cache.
	cmd := gotool.Command(ctx, checkout.Root, p.Dir, "build", "-trimpath", "-ldflags=-s", "-o", binary, "./cmd/"+name)
	cmd.Env = append(cmd.Env, "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", name, errors.Join(err, ctx.Err()), out)
	}
	fmt.Fprintf(p.Log, "built %s in %s\n", name, watch)
	if p.built == nil {
		p.built = map[string]string{}
	}
	p.built[name] = binary
	return binary, nil
}

// Programs are those that the cluster runs.
func (c *Cluster) Programs() *Programs { return c.programs }
