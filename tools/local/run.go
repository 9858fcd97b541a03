package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/opgate/opgate/e2e/assets"
	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/node"
	"github.com/opgate/opgate/e2e/olm"
)

// Options configure Run. The zero value is useful.
type Options struct {
	// Gate is a binary of opgate-server. Default: it is built.
	Gate string
	// OLM is whether OLM runs as well, with a catalog.
	OLM bool
	// Install leaves Opgate to be installed with helm: a node runs its pods as processes, and has the image.
	Install bool
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
	p, err := l.start(ctx, out, opts)
	defer func() {
		fmt.Fprintln(log, "stopping")
		err = errors.Join(err, p.stop())
	}()
	if err != nil {
		return err
	}
	if err := l.publish(ctx, p, opts, out); err != nil {
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
	case err := <-p.ended:
		return err
	}
}

// parts are what runs.
type parts struct {
	cluster *cluster.Cluster
	olm     *olm.OLM
	opgate  string // the binary of the commands
	// ended has an error when one of them has ended by itself.
	ended chan error
}

// stop stops what was started.
func (p *parts) stop() (err error) {
	if p.olm != nil {
		err = p.olm.Stop()
	}
	if p.cluster != nil {
		err = errors.Join(err, p.cluster.Stop())
	}
	return err
}

// start starts what the options ask for. With an error it returns what runs nevertheless.
func (l layout) start(ctx context.Context, out io.Writer, opts Options) (*parts, error) {
	p := &parts{ended: make(chan error, 2)}
	var binaries assets.OLM
	var err error
	if opts.OLM {
		// Before anything runs: the first time this takes minutes.
		if binaries, err = assets.FindOLM(ctx, assets.Options{Log: out}); err != nil {
			return p, err
		}
	}
	plane, err := assets.Find(ctx, assets.Options{Log: out, AnyPatch: true})
	if err != nil {
		return p, err
	}
	programs := &cluster.Programs{Gate: opts.Gate}
	p.cluster, err = cluster.Start(ctx, cluster.Options{Assets: plane, Dir: l.run(), Programs: programs,
		ChartRights: !opts.Install, Bare: opts.Install, Node: opts.Install, Log: out})
	if err != nil {
		return p, err
	}
	if opts.Install {
		err = p.startNode(ctx, programs, out)
	} else {
		err = p.startOpgate(ctx)
	}
	if err != nil {
		return p, err
	}
	if p.opgate, err = programs.Opgate(ctx); err != nil {
		return p, err
	}
	if opts.OLM {
		if p.olm, err = olm.Start(ctx, p.cluster, olm.Options{Assets: binaries, Node: opts.Install,
			Log: out}); err != nil {
			return p, err
		}
		go func() { p.ended <- p.olm.Wait(ctx) }()
	}
	return p, nil
}

func (p *parts) startOpgate(ctx context.Context) error {
	gate, err := p.cluster.StartOpgate(ctx, cluster.GateOptions{Loop: true})
	if err != nil {
		return err
	}
	go func() {
		<-gate.Exited()
		code, err := gate.Stop()
		p.ended <- errors.Join(fmt.Errorf("opgate ended by itself with exit code %d", code), err)
	}()
	return nil
}

// startNode starts a node that has the images of Opgate and of the operators in the catalog, which do nothing.
func (p *parts) startNode(ctx context.Context, programs *cluster.Programs, out io.Writer) error {
	server, err := programs.Server(ctx)
	if err != nil {
		return err
	}
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		return err
	}
	images := map[string]node.Program{node.OpgateImage: node.Opgate(server)}
	for _, operator := range olm.Packages() {
		images[operator.Image()] = node.Program{Path: sleep,
			Args: func(node.Container) []string { return []string{"infinity"} }}
	}
	_, err = node.Start(ctx, p.cluster, node.Options{Log: out, Images: images})
	return err
}

// publish puts what people need where it does not change from one start to the next.
func (l layout) publish(ctx context.Context, p *parts, opts Options, out io.Writer) error {
	kubeconfig, err := os.ReadFile(p.cluster.Kubeconfig())
	if err != nil {
		return fmt.Errorf("publish the kubeconfig: %w", err)
	}
	if err := os.WriteFile(l.kubeconfig(), kubeconfig, 0o600); err != nil {
		return fmt.Errorf("publish the kubeconfig: %w", err)
	}
	if err := os.MkdirAll(l.bin(), 0o750); err != nil {
		return fmt.Errorf("publish commands: %w", err)
	}
	commands := map[string]string{"kubectl": p.cluster.Assets().Kubectl(),
		"opgate": p.opgate, "kubectl-opgate": p.opgate, "kubectl_complete-opgate": p.opgate}
	if opts.Install {
		if commands["helm"], err = assets.FindHelm(ctx, assets.Options{Log: out}); err != nil {
			return err
		}
	}
	for name, path := range commands {
		if path, err = filepath.Abs(path); err != nil {
			return fmt.Errorf("publish %s: %w", name, err)
		}
		if err := os.Symlink(path, filepath.Join(l.bin(), name)); err != nil {
			return fmt.Errorf("publish %s: %w", name, err)
		}
	}
	if opts.OLM {
		if err := os.WriteFile(l.example(), example, 0o600); err != nil {
			return fmt.Errorf("publish an example: %w", err)
		}
	}
	if err := os.WriteFile(l.next(), []byte(l.nextSteps(opts)), 0o600); err != nil {
		return fmt.Errorf("publish what to do next: %w", err)
	}
	return nil
}
