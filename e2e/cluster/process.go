package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/opgate/opgate/e2e/internal/speed"
)

// process is a child process that writes to a log file and runs until it is stopped.
type process struct {
	cmd  atomic.Pointer[exec.Cmd]
	log  string
	done chan struct{} // closed once it has been waited for
	// again starts it again when it has ended with exit code 0, as a kubelet does; nil for never. Starts counts that, and
	// ending is set once it is to end.
	again  func() (*exec.Cmd, error)
	starts atomic.Int64
	ending atomic.Bool
}

// startProcess starts a program in the environment of this process. The process outlives ctx: it is stopped by
// terminate or kill, in the order that its dependents need.
func startProcess(ctx context.Context, log, path string, args ...string) (*process, error) {
	return startProcessIn(ctx, false, append(os.Environ(), "KUBECONFIG="), log, path, args...)
}

// startProcessIn is startProcess with an environment. The log is added to, if there is one already. Again starts it
// again when it has ended with exit code 0.
func startProcessIn(
	ctx context.Context, again bool, environment []string, log, path string, args ...string,
) (*process, error) {
	start := func() (*exec.Cmd, error) {
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
		return cmd, cmd.Start()
	}
	cmd, err := start()
	if err != nil {
		return nil, err
	}
	p := &process{log: log, done: make(chan struct{})}
	if again {
		p.again = start
	}
	p.cmd.Store(cmd)
	go p.wait(cmd)
	return p, nil
}

// wait waits for the end of the process.
func (p *process) wait(cmd *exec.Cmd) {
	defer close(p.done)
	for {
		// The exit code, the only useful result of Wait here, is kept in ProcessState.
		_ = cmd.Wait()
		if p.again == nil || p.ending.Load() || cmd.ProcessState.ExitCode() != 0 {
			return
		}
		next, err := p.again()
		if err != nil {
			return
		}
		cmd = next
		p.cmd.Store(cmd)
		if p.starts.Add(1); p.ending.Load() {
			_ = cmd.Process.Kill()
		}
	}
}

func (p *process) pid() int { return p.cmd.Load().Process.Pid }

// exited is closed when the process has ended.
func (p *process) exited() <-chan struct{} { return p.done }

// exitCode waits for the end of the process. It is -1 when a signal ended it.
func (p *process) exitCode() int {
	<-p.done
	return p.cmd.Load().ProcessState.ExitCode()
}

// terminate sends SIGTERM and waits. After the grace period, in machine time, it kills the process and returns an error.
func (p *process) terminate(grace time.Duration) error {
	p.ending.Store(true)
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
	p.ending.Store(true)
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.done
	return nil
}

// signal does nothing when the process has ended.
func (p *process) signal(sig os.Signal) error {
	if err := p.cmd.Load().Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}
