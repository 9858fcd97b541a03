// Package orphans ends processes whose parent was killed before it could stop them.
package orphans

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/opgate/opgate/e2e/internal/speed"
)

const (
	// endTimeout bounds how long a leftover process may take to end after SIGTERM.
	endTimeout = 20 * time.Second
	// pollInterval is how often the list of processes is read.
	pollInterval = 100 * time.Millisecond
)

// End ends the processes of a control plane that were left running with their data in dir, because the process that had
// started them was killed and could not stop them.
func End(ctx context.Context, out io.Writer, dir string) error {
	// What runs in place of a pod may be any program in that directory.
	placed := func(args []string) bool { return strings.HasPrefix(args[0], filepath.Join(dir, "pods")+"/") }
	if err := end(ctx, out, "pod", placed); err != nil {
		return err
	}
	// Each before the one that it needs: kube-apiserver does not end gracefully without etcd.
	for _, name := range []string{"olm", "catalog", "package-server", "opm", "opgate-server", "kube-controller-manager",
		"kube-apiserver", "etcd"} {
		if err := end(ctx, out, name, of(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// of returns a function that reports whether a command line is that of a program with its data in dir.
func of(dir, name string) func(args []string) bool {
	inDir := func(arg string) bool { return names(arg, dir) }
	return func(args []string) bool {
		return filepath.Base(args[0]) == name && slices.ContainsFunc(args[1:], inDir)
	}
}

// Find returns the command lines of the processes of a program with its data in dir, by their IDs.
func Find(ctx context.Context, dir, name string) (map[int][]string, error) {
	all, err := commandLines(ctx)
	match := of(dir, name)
	maps.DeleteFunc(all, func(_ int, args []string) bool { return !match(args) })
	return all, err
}

// In returns the command lines of all processes that name a file in dir, by their IDs.
func In(ctx context.Context, dir string) (map[int][]string, error) {
	all, err := commandLines(ctx)
	maps.DeleteFunc(all, func(_ int, args []string) bool {
		return !slices.ContainsFunc(args, func(arg string) bool { return names(arg, dir) })
	})
	return all, err
}

// names reports whether an argument names a file in dir, such as "--data-dir=DIR/etcd". The directory of another
// checkout may end with the whole path of this one.
func names(arg, dir string) bool {
	before, _, found := strings.Cut(arg, dir+"/")
	return found && (before == "" || strings.HasSuffix(before, "="))
}

// end ends the processes that match.
func end(ctx context.Context, out io.Writer, name string, match func(args []string) bool) error {
	if err := endAll(ctx, out, name, match); err != nil {
		return fmt.Errorf("end leftover %s: %w", name, err)
	}
	return nil
}

func endAll(ctx context.Context, out io.Writer, name string, match func(args []string) bool) error {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		left, err := find(ctx, match)
		if err != nil {
			return err
		}
		for _, pid := range left {
			fmt.Fprintf(out, "ending leftover %s (process %d)\n", name, pid)
			if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("send %s to process %d: %w", sig, pid, err)
			}
		}
		err = speed.Poll(ctx, pollInterval, endTimeout,
			func(ctx context.Context) (bool, error) {
				left, err := find(ctx, match)
				return len(left) == 0, err
			})
		if err == nil || !wait.Interrupted(err) || ctx.Err() != nil {
			return err
		}
	}
	return errors.New("it does not end")
}

// find returns the processes whose arguments match: those of a program that have dir in them. Arguments identify them,
// since a recorded process ID may have been reused.
func find(ctx context.Context, match func(args []string) bool) (pids []int, err error) {
	processes, err := commandLines(ctx)
	if err != nil {
		return nil, err
	}
	for pid, args := range processes {
		if match(args) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// commandLines returns the arguments of every process, at least one each.
func commandLines(ctx context.Context) (map[int][]string, error) {
	if _, err := os.Stat("/proc/self/cmdline"); err == nil {
		return commandLinesFromProc()
	}
	return commandLinesFromPS(ctx)
}

func commandLinesFromProc() (map[int][]string, error) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	processes := map[int][]string{}
	for _, file := range files {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			continue
		}
		// The process may have ended since. Kernel threads and zombies have no arguments.
		data, err := os.ReadFile(file)
		if err != nil || len(data) == 0 {
			continue
		}
		processes[pid] = strings.Split(strings.TrimRight(string(data), "\x00"), "\x00")
	}
	return processes, nil
}

// commandLinesFromPS is for systems without /proc. It cannot distinguish a space inside an argument from one between
// two.
func commandLinesFromPS(ctx context.Context) (map[int][]string, error) {
	out, err := exec.CommandContext(ctx, "ps", "-A", "-o", "pid=,args=").Output()
	if err != nil {
		return nil, fmt.Errorf("ps: %w", err)
	}
	processes := map[int][]string{}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		pid, err := strconv.Atoi(fields[0])
		if err != nil {
			return nil, fmt.Errorf("ps: %w", err)
		}
		processes[pid] = fields[1:]
	}
	return processes, nil
}
