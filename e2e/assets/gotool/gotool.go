// Package gotool runs the go command.
package gotool

import (
	"context"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// Command returns a go command that runs in the module in dir and keeps its temporary files in temp, which must exist.
// The caller removes temp: when ctx ends, the go command and the compilers that it started are killed, and the go
// command would not clean up after a gentler signal either.
func Command(ctx context.Context, dir, temp string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	// A workspace around the checkout must not change which versions are built.
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOTMPDIR="+temp)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	// A process that escaped from the group could keep the output open.
	cmd.WaitDelay = 10 * time.Second
	return cmd
}
