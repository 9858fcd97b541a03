package cluster

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/opgate/opgate/e2e/assets/tail"
	"github.com/opgate/opgate/e2e/internal/speed"
)

// companionStopTimeout bounds a graceful stop.
const companionStopTimeout = speed.Wait

// Companion is a process beside the control plane, such as one of OLM's operators.
type Companion struct {
	name    string
	process *process
}

// StartCompanion runs a program. Its log is a file of its own in Dir. Variables, such as "NAME=value", are added to its
// environment, from which CI is removed: where it is set, OLM's operators panic on a request for an object without
// their label, and they request tokens of ServiceAccounts that have none. Cluster.Stop does not stop it.
func (c *Cluster) StartCompanion(
	ctx context.Context, name string, variables []string, path string, args ...string,
) (*Companion, error) {
	log, err := os.CreateTemp(c.dir, name+"-*.log")
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	if err := log.Close(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	// env execs the program, so signals reach the program.
	process, err := startProcess(ctx, log.Name(), "env",
		slices.Concat([]string{"--unset=CI"}, variables, []string{path}, args)...)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return &Companion{name: name, process: process}, nil
}

// Program describes what StartProgram runs.
type Program struct {
	// Name is its name in errors.
	Name string
	// Path is the executable, Args are its arguments.
	Path string
	Args []string
	// Env is the whole of its environment, such as "NAME=value".
	Env []string
	// Log is the file that its output is added to.
	Log string
}

// StartProgram is StartCompanion for a program that inherits nothing from the environment of this process.
func StartProgram(ctx context.Context, program Program) (*Companion, error) {
	process, err := startProcessIn(ctx, false, append([]string{}, program.Env...), program.Log, program.Path, program.Args...)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", program.Name, err)
	}
	return &Companion{name: program.Name, process: process}, nil
}

// Stop asks the process to end and waits until it has. Calling it again does nothing. When it does not end in time it
// is killed, which is an error.
func (p *Companion) Stop() error {
	if err := p.process.terminate(companionStopTimeout); err != nil {
		return fmt.Errorf("stop %s: %w; its log ends with\n%s", p.name, err, tail.File(p.LogPath(), logLines))
	}
	return nil
}

// Kill ends the process at once, and waits until it has ended.
func (p *Companion) Kill() error {
	if err := p.process.kill(); err != nil {
		return fmt.Errorf("kill %s: %w", p.name, err)
	}
	return nil
}

// Signal sends a signal to the process. It does nothing when that has ended.
func (p *Companion) Signal(sig os.Signal) error {
	if err := p.process.signal(sig); err != nil {
		return fmt.Errorf("send %s to %s: %w", sig, p.name, err)
	}
	return nil
}

// PID is the process ID.
func (p *Companion) PID() int { return p.process.pid() }

// Exited is closed when the process has ended, for whatever reason.
func (p *Companion) Exited() <-chan struct{} { return p.process.exited() }

// State waits for the end of the process and returns how it ended.
func (p *Companion) State() *os.ProcessState {
	<-p.process.exited()
	return p.process.cmd.Load().ProcessState
}

// Err returns an error, which quotes the log, when the process has ended.
func (p *Companion) Err() error {
	select {
	case <-p.process.exited():
		return fmt.Errorf("%s exited with code %d; its log ends with\n%s", p.name, p.process.exitCode(),
			tail.File(p.LogPath(), logLines))
	default:
		return nil
	}
}

// LogPath is the file that the process logs to.
func (p *Companion) LogPath() string { return p.process.log }
