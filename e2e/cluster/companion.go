package cluster

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/opgate/opgate/e2e/internal/tail"
)

// companionStopTimeout bounds a graceful stop.
const companionStopTimeout = 30 * time.Second

// Companion is a process beside the control plane, such as one of OLM's operators.
type Companion struct {
	name    string
	process *process
}

// StartCompanion runs a program. Its log is a file of its own in Dir. Variables, such as "NAME=value", are added
// to its environment. Cluster.Stop does not stop it.
func (c *Cluster) StartCompanion(ctx context.Context, name string, variables []string, path string, args ...string) (*Companion, error) {
	log, err := os.CreateTemp(c.dir, name+"-*.log")
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	if err := log.Close(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	// env becomes the program, so it is that which signals reach.
	process, err := startProcess(ctx, log.Name(), "env", append(append(variables[:len(variables):len(variables)], path), args...)...)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return &Companion{name: name, process: process}, nil
}

// Stop asks the process to end and waits until it has. Calling it again does nothing. When it does not end in time it is
// killed, which is an error.
func (p *Companion) Stop() error {
	if err := p.process.terminate(companionStopTimeout); err != nil {
		return fmt.Errorf("stop %s: %w; its log ends with\n%s", p.name, err, tail.File(p.LogPath(), logLines))
	}
	return nil
}

// Err returns an error, which quotes the log, when the process has ended.
func (p *Companion) Err() error {
	select {
	case <-p.process.exited():
		return fmt.Errorf("%s exited with code %d; its log ends with\n%s", p.name, p.process.exitCode(), tail.File(p.LogPath(), logLines))
	default:
		return nil
	}
}

// LogPath is the file that the process logs to.
func (p *Companion) LogPath() string { return p.process.log }

// FreeAddress returns an address on the loopback interface that nobody listens on.
func FreeAddress(ctx context.Context) (string, error) {
	addresses, err := freeAddresses(ctx, 1)
	if err != nil {
		return "", err
	}
	return addresses[0], nil
}
