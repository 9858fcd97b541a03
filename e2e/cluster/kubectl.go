package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Command is a call of kubectl.
type Command struct {
	// User is who calls.
	User User
	// Args are the arguments, without those that select the user and the cluster.
	Args []string
	// Dir is the working directory, which file names in Args are relative to. Default: that of this process.
	Dir string
	// Stdin is what kubectl reads from "-f -".
	Stdin string
	// Env is added to the environment, which has nothing of this process but PATH and TMPDIR.
	Env []string
}

// Result is what a call of kubectl gave.
type Result struct {
	// Stdout and Stderr are what it printed. Admission warnings and errors are on Stderr.
	Stdout, Stderr string
	// ExitCode is 0 when the API server did what was asked.
	ExitCode int
}

// Kubectl runs the real kubectl as a user. An exit code other than 0 is a result, not an error; an error says that kubectl
// could not be run, or was stopped because ctx ended.
func (c *Cluster) Kubectl(ctx context.Context, user User, stdin string, args ...string) (Result, error) {
	return c.Run(ctx, Command{User: user, Args: args, Stdin: stdin})
}

// Run is Kubectl for commands that need more than a user and arguments.
func (c *Cluster) Run(ctx context.Context, command Command) (Result, error) {
	if _, err := c.account(command.User); err != nil {
		return Result{}, fmt.Errorf("kubectl: %w", err)
	}
	home := filepath.Join(c.dir, "home")
	if err := os.MkdirAll(home, 0o700); err != nil {
		return Result{}, fmt.Errorf("kubectl: %w", err)
	}
	args := append([]string{
		"--kubeconfig", c.kubeconfigFor(command.User),
		"--context", string(command.User),
		"--cache-dir", filepath.Join(home, "cache"),
	}, command.Args...)

	cmd := exec.CommandContext(ctx, c.assets.Kubectl(), args...)
	cmd.Dir = command.Dir
	// A home of its own: neither the person's ~/.kube nor their kuberc, plugins or KUBECTL_* settings take part.
	cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir()}
	cmd.Env = append(cmd.Env, command.Env...)
	cmd.WaitDelay = 5 * time.Second
	cmd.Stdin = strings.NewReader(command.Stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr

	err := cmd.Run()
	result := Result{Stdout: stdout.String(), Stderr: stderr.String(), ExitCode: cmd.ProcessState.ExitCode()}
	if ctx.Err() != nil {
		return result, fmt.Errorf("kubectl: %w", ctx.Err())
	}
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return result, fmt.Errorf("kubectl: %w", err)
	}
	return result, nil
}
