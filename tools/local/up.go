package local

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"

	"github.com/opgate/opgate/e2e/assets/tail"
	"github.com/opgate/opgate/e2e/cluster/orphans"
)

const (
	// ready is the line by which the background process reports that it is up. All others are for people.
	ready = "\x00ready"
	// progressFD is the file descriptor of the background process that leads to Up.
	progressFD = 3
	// logLines is how much of a log an error quotes.
	logLines = 50
)

// Up starts a control plane with Opgate in the background and returns when it is ready. Progress, and what to type
// next, goes to out. The background process is this program with the arguments of runCommand, which must call Run.
//
// When ctx ends before it is ready, the background process is stopped again.
func Up(ctx context.Context, out io.Writer, runCommand ...string) error {
	l, err := findLayout()
	if err != nil {
		return err
	}
	if err := l.prepare(ctx, out); err != nil {
		return err
	}
	up, err := l.spawn(ctx, out, runCommand)
	if err != nil {
		return fmt.Errorf("start in the background: %w", err)
	}
	if !up {
		return fmt.Errorf("the background process ended before it was ready; %s ends with\n%s", l.log(),
			tail.File(l.log(), logLines))
	}
	return l.printNext(out)
}

// prepare makes an empty directory, unless a background process is using it.
func (l layout) prepare(ctx context.Context, out io.Writer) error {
	lock, held, err := l.tryLock()
	switch {
	case err != nil:
		return err
	case held:
		return errors.Join(l.printNext(out), fmt.Errorf("already up (process %d)", l.holder()))
	}
	defer func() { _ = lock.Close() }()
	return l.clean(ctx, out)
}

// spawn starts the background process and relays its progress until it is ready or has ended.
func (l layout) spawn(ctx context.Context, out io.Writer, runCommand []string) (up bool, err error) {
	program, err := os.Executable()
	if err != nil {
		return false, err
	}
	if err := os.MkdirAll(l.dir, 0o750); err != nil {
		return false, err
	}
	log, err := os.Create(l.log())
	if err != nil {
		return false, err
	}
	defer func() { _ = log.Close() }()
	progress, write, err := os.Pipe()
	if err != nil {
		return false, err
	}
	defer func() { _ = progress.Close() }()

	// The process is to outlive this one and its context.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), program, runCommand...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{write} // becomes progressFD
	// A session of its own: it has no terminal whose end, or whose Ctrl-C, could reach it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	_ = write.Close()
	if err != nil {
		return false, err
	}
	disarm := context.AfterFunc(ctx, func() {
		fmt.Fprintln(out, "stopping it again")
		// It has ended already if this fails.
		_ = cmd.Process.Signal(syscall.SIGTERM)
	})
	defer disarm()

	// The other end closes when the process is ready, and when it ends.
	lines := bufio.NewScanner(progress)
	for lines.Scan() {
		if lines.Text() == ready {
			up = true
			continue
		}
		fmt.Fprintln(out, lines.Text())
	}
	if up && disarm() {
		return true, nil
	}
	// How it ended is in its log.
	_ = cmd.Wait()
	return false, ctx.Err()
}

func (l layout) printNext(out io.Writer) error {
	next, err := os.ReadFile(l.next())
	if errors.Is(err, os.ErrNotExist) {
		return nil // it is not ready yet
	}
	if err != nil {
		return err
	}
	_, err = out.Write(next)
	return err
}

// clean removes what an earlier background process left, and ends what it left running if it was killed. The caller
// holds the lock.
func (l layout) clean(ctx context.Context, out io.Writer) error {
	if err := orphans.End(ctx, out, l.run()); err != nil {
		return err
	}
	for _, path := range []string{l.kubeconfig(), l.bin(), l.example(), l.next(), l.run(), l.log()} {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("clean up: %w", err)
		}
	}
	return nil
}
