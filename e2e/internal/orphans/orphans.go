// Package orphans ends processes whose parent was killed before it could stop them.
package orphans

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// endTimeout bounds how long a leftover process may take to end after it was asked to.
	endTimeout = 20 * time.Second
	// pollInterval is how often the list of processes is looked at.
	pollInterval = 100 * time.Millisecond
)

// End ends the processes of a control plane that were left running with their data in dir, because the process that had
// started them was killed and could not stop them.
func End(ctx context.Context, out io.Writer, dir string) error {
	// Each before the one that it needs: kube-apiserver does not end in peace without etcd.
	for _, name := range []string{"olm", "catalog", "opm", "opgate", "kube-apiserver", "etcd"} {
		if err := endNamed(ctx, out, name, dir); err != nil {
			return fmt.Errorf("end leftover %s: %w", name, err)
		}
	}
	return nil
}

func endNamed(ctx context.Context, out io.Writer, name, dir string) error {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		left, err := find(ctx, name, dir)
		if err != nil {
			return err
		}
		for _, pid := range left {
			fmt.Fprintf(out, "ending leftover %s (process %d)\n", name, pid)
			if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("send %s to process %d: %w", sig, pid, err)
			}
		}
		err = wait.PollUntilContextTimeout(ctx, pollInterval, endTimeout, true, func(ctx context.Context) (bool, error) {
			left, err := find(ctx, name, dir)
			return len(left) == 0, err
		})
		if err == nil || !wait.Interrupted(err) || ctx.Err() != nil {
			return err
		}
	}
	return errors.New("it does not end")
}

// find returns the processes of a program that have dir in their arguments. That is how they are known: a process ID
// on record could be another's by now.
func find(ctx context.Context, name, dir string) (pids []int, err error) {
	processes, err := commandLines(ctx)
	if err != nil {
		return nil, err
	}
	for pid, args := range processes {
		inDir := func(arg string) bool { return strings.Contains(arg, dir+"/") }
		if filepath.Base(args[0]) == name && slices.ContainsFunc(args[1:], inDir) {
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
		// The process may have ended since. Kernel threads, and the dead that nobody waited for, have no arguments.
		data, err := os.ReadFile(file)
		if err != nil || len(data) == 0 {
			continue
		}
		processes[pid] = strings.Split(strings.TrimRight(string(data), "\x00"), "\x00")
	}
	return processes, nil
}

// commandLinesFromPS is for systems without /proc. It cannot tell a space inside an argument from one between two.
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
