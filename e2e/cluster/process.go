package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/opgate/opgate/e2e/internal/speed"
)

// process is a child process that writes to a log file and runs until it is stopped.
type process struct {
	cmd  *exec.Cmd
	log  string
	done chan struct{} // closed once cmd has been waited for
}

// startProcess starts a program in the environment of this process. The process outlives ctx: it is stopped by
// terminate or kill, in the order that its dependents need.
func startProcess(ctx context.Context, log, path string, args ...string) (*process, error) {
	return startProcessIn(ctx, append(os.Environ(), "KUBECONFIG="), log, path, args...)
}

// startProcessIn is startProcess with an environment. The log is added to, if there is one already.
func startProcessIn(ctx context.Context, environment []string, log, path string, args ...string) (*process, error) {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()

	cmd := exec.CommandContext(context.WithoutCancel(ctx), path, args...)
	cmd.Stdout, cmd.Stderr = file, file
	cmd.Env = environment
	// A process group of its own, so that Ctrl-C in a terminal reaches the harness alone.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, log: log, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		// The exit code, the only useful result of Wait here, is kept in ProcessState.
		_ = cmd.Wait()
	}()
	return p, nil
}

// exited is closed when the process has ended.
func (p *process) exited() <-chan struct{} { return p.done }

// exitCode waits for the end of the process. It is -1 when a signal ended it.
func (p *process) exitCode() int {
	<-p.done
	return p.cmd.ProcessState.ExitCode()
}

// terminate sends SIGTERM and waits. After the grace period, in machine time, it kills the process and returns an error.
func (p *process) terminate(grace time.Duration) error {
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	waiting, cancel := speed.WithTimeout(context.Background(), grace) //nolint:forbidigo // callers end what has ended
	defer cancel()
	select {
	case <-p.done:
		return nil
	case <-waiting.Done():
		return errors.Join(fmt.Errorf("still running %s after SIGTERM, killed", grace), p.kill())
	}
}

// kill sends SIGKILL and waits.
func (p *process) kill() error {
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.done
	return nil
}

// signal does nothing when the process has ended.
func (p *process) signal(sig os.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}
