package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Measure runs a test binary, adds to a file which package used how much CPU time, and returns the exit code. go test
// calls it by -exec, in the directory of the package. What the tests started counts if they waited for it.
func Measure(ctx context.Context, file string, args []string) int {
	// The test is interrupted as well, and ends first: the signal is taken and dropped, since a test would inherit that it is
	// ignored. SIGQUIT asks for the dump of its goroutines.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	quit := make(chan os.Signal, 1)
	signal.Notify(quit, syscall.SIGQUIT, syscall.SIGTERM)
	cmd := exec.CommandContext(context.WithoutCancel(ctx), args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	go func() {
		for sig := range quit {
			_ = cmd.Process.Signal(sig) // it may have ended
		}
	}()
	err := cmd.Wait()
	if record := appendUsage(file, cmd.ProcessState); record != nil {
		fmt.Fprintln(os.Stderr, record)
	}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() > 0:
		return exit.ExitCode()
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// appendUsage adds a line: the directory of the package, a tab, and its CPU time in nanoseconds.
func appendUsage(file string, state *os.ProcessState) error {
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s\t%d\n", dir, state.UserTime()+state.SystemTime())
	return errors.Join(err, out.Close())
}

// readUsage returns the CPU time of packages, by their directories from the root.
func readUsage(root, file string) (map[string]time.Duration, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) { // nothing was compiled
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	usage := map[string]time.Duration{}
	for line := range strings.Lines(string(data)) {
		dir, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		used, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		name, err := filepath.Rel(root, dir)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		usage[filepath.ToSlash(name)] += time.Duration(used)
	}
	return usage, nil
}

// children is the CPU time of all processes that this one has waited for, and of those that they waited for.
func children() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
