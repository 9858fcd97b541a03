// Package reaper ends the processes that a test binary leaves running when it is killed.
package reaper

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/opgate/opgate/e2e/cluster/orphans"
)

// variable makes a test binary a reaper of the directory that it names.
const variable = "OPGATE_E2E_REAP"

// Main must be called at the start of a test binary. If that was started as a reaper, it does its work, and the binary
// must exit with the code; otherwise it does nothing.
func Main(ctx context.Context) (code int, reaper bool) {
	dir := os.Getenv(variable)
	if dir == "" {
		return 0, false
	}
	return reap(ctx, dir), true
}

// Start starts a process that outlives this one, and then ends the processes that this one leaves running with data in
// dir. A panic, a test timeout, and SIGKILL all end a test binary without cleanup.
func Start(ctx context.Context, dir string) (dismiss func() error, err error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	// It reads from this pipe, whose other end closes with this process.
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(context.WithoutCancel(ctx), program)
	cmd.Env = append(os.Environ(), variable+"="+dir)
	cmd.Stdin, cmd.Stdout = read, &out // libraries write to standard error while a slow machine starts it
	// A session of its own, so that what ends this process does not end it as well.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	_ = read.Close()
	if err != nil {
		return nil, errors.Join(err, write.Close())
	}
	return func() error {
		if err := errors.Join(write.Close(), cmd.Wait()); err != nil {
			return fmt.Errorf("end the reaper: %w\n%s", err, out.String())
		}
		if out.Len() > 0 {
			return fmt.Errorf("the cluster left something behind: %s", out.String())
		}
		return nil
	}, nil
}

// reap waits for the end of the process that started this one.
func reap(ctx context.Context, dir string) (code int) {
	signal.Ignore(syscall.SIGPIPE)       // the reader of the output may have ended
	_, _ = io.Copy(io.Discard, os.Stdin) // an error means the end as well
	err := errors.Join(orphans.End(ctx, os.Stdout, dir), os.RemoveAll(dir))
	if err != nil {
		fmt.Fprintln(os.Stdout, err)
		return 1
	}
	return 0
}
