package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/opgate/opgate/e2e/internal/speed"
)

// commandTimeout bounds a command. It decides, in machine time, where one has a timeout of its own by the clock.
const commandTimeout = speed.LongWait

// Command is a call of kubectl.
type Command struct {
	// User is the user of the call.
	User User
	// Args are the arguments, without those that select the user and the cluster.
	Args []string
	// Dir is the working directory, which file names in Args are relative to. Default: that of this process.
	Dir string
	// Stdin is the input for "-f -".
	Stdin string
	// Env is added to the environment, which has nothing of this process but PATH and TMPDIR.
	Env []string
}

// Result is the result of a call of kubectl.
type Result struct {
	// Stdout and Stderr are its output. Admission warnings and errors are on Stderr.
	Stdout, Stderr string
	// ExitCode is 0 when the request succeeded.
	ExitCode int
}

// Kubectl runs the real kubectl as a user. An exit code other than 0 is a result, not an error; an error reports that
// kubectl could not be run, or was stopped because ctx ended.
func (c *Cluster) Kubectl(ctx context.Context, user User, stdin string, args ...string) (Result, error) {
	return c.Run(ctx, Command{User: user, Args: args, Stdin: stdin})
}

// Run is Kubectl for commands that need more than a user and arguments.
func (c *Cluster) Run(ctx context.Context, command Command) (Result, error) {
	if _, err := c.account(command.User); err != nil {
		return Result{}, fmt.Errorf("kubectl: %w", err)
	}
	if slices.Index(command.Args, "wait") == 0 {
		// Without it, and where the test states another, it would wait for a time by the clock; the last of a flag counts.
		command.Args = append(slices.Clone(command.Args), "--timeout=-1s")
	}
	command.Args = append([]string{
		"--kubeconfig", c.kubeconfigFor(command.User),
		"--context", string(command.User),
		"--cache-dir", filepath.Join(c.home(), "cache"),
	}, command.Args...)
	result, err := c.execute(ctx, c.assets.Kubectl(), command)
	if err != nil {
		return result, fmt.Errorf("kubectl: %w", err)
	}
	return result, nil
}

// RunOpgate runs a command of opgate as Admin. An exit code other than 0 is a result, as for Run.
func (c *Cluster) RunOpgate(ctx context.Context, command Command) (Result, error) {
	opgate, err := c.programs.Opgate(ctx)
	if err != nil {
		return Result{}, err
	}
	command.Env = append(command.Env, "KUBECONFIG="+c.Kubeconfig())
	result, err := c.execute(ctx, opgate, command)
	if err != nil {
		return result, fmt.Errorf("opgate: %w", err)
	}
	return result, nil
}

// RunPlugin runs the real kubectl with opgate as its plugin, as users do: Args begin with "opgate". The default of the
// kubeconfig is Kubeconfig. An exit code other than 0 is a result, as for Run.
func (c *Cluster) RunPlugin(ctx context.Context, kubeconfig string, command Command) (Result, error) {
	opgate, err := c.programs.Opgate(ctx)
	if err != nil {
		return Result{}, err
	}
	if opgate, err = filepath.Abs(opgate); err != nil {
		return Result{}, err
	}
	plugins := filepath.Join(c.dir, "plugins")
	if err := os.MkdirAll(plugins, 0o700); err != nil {
		return Result{}, err
	}
	for _, name := range []string{"kubectl-opgate", "kubectl_complete-opgate"} {
		if err := os.Symlink(opgate, filepath.Join(plugins, name)); err != nil && !errors.Is(err, os.ErrExist) {
			return Result{}, err
		}
	}
	if kubeconfig == "" {
		kubeconfig = c.Kubeconfig()
	}
	// What the caller sets comes last, and wins: PATH may name another plugin.
	command.Env = append([]string{"KUBECONFIG=" + kubeconfig, "PATH=" + plugins + string(os.PathListSeparator) +
		os.Getenv("PATH")}, command.Env...)
	result, err := c.execute(ctx, c.assets.Kubectl(), command)
	if err != nil {
		return result, fmt.Errorf("kubectl opgate: %w", err)
	}
	return result, nil
}

// home is the home directory of executed programs. It is not the user's: their ~/.kube, kuberc, plugins, charts and
// environment have no effect.
func (c *Cluster) home() string { return filepath.Join(c.dir, "home") }

// execute runs a program to its end with the arguments that are given.
func (c *Cluster) execute(ctx context.Context, path string, command Command) (Result, error) {
	if err := os.MkdirAll(c.home(), 0o700); err != nil {
		return Result{}, err
	}
	ctx, cancel := c.Working(ctx)
	defer cancel()
	ctx, cancel = speed.WithTimeout(ctx, commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, command.Args...)
	cmd.Dir = command.Dir
	cmd.Env = []string{"HOME=" + c.home(), "PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir()}
	cmd.Env = append(cmd.Env, command.Env...)
	cmd.WaitDelay = 5 * time.Second
	cmd.Stdin = strings.NewReader(command.Stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr

	err := cmd.Run()
	result := Result{Stdout: stdout.String(), Stderr: stderr.String(), ExitCode: cmd.ProcessState.ExitCode()}
	if ctx.Err() != nil {
		return result, context.Cause(ctx)
	}
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return result, err
	}
	return result, nil
}
