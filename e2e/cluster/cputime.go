package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/opgate/opgate/e2e/cluster/orphans"
)

// ticksPerSecond is the unit of CPU times in /proc, on every architecture that Go supports.
const ticksPerSecond = 100

// CPUTime is the CPU time, in user mode and in the kernel, of the processes of the cluster that run now, and of those
// that they waited for. It needs /proc.
func (c *Cluster) CPUTime(ctx context.Context) (sum time.Duration, err error) {
	processes, err := orphans.In(ctx, c.dir)
	for pid := range processes {
		used, readErr := cpuTime(pid)
		if readErr != nil && !errors.Is(readErr, os.ErrNotExist) {
			return 0, readErr
		}
		sum += used
	}
	return sum, err
}

// cpuTime reads what a process, and the children that it waited for, have used.
func cpuTime(pid int) (sum time.Duration, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name of the program, in parentheses, is the second field; user and system time are the fourteenth and the
	// fifteenth, and those of children follow.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 15 {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	for _, field := range fields[11:15] {
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/%d/stat: %w", pid, err)
		}
		sum += time.Duration(ticks) * (time.Second / ticksPerSecond)
	}
	return sum, nil
}
