// Package speed measures this machine, so that tests fit it: how long they wait, how long what they measure lasts, and
// how many of them run at once. Deadlines are in machine time, which is measured again while a test waits.
package speed

import (
	"bytes"
	"context"
	"crypto/md5" //nolint:gosec // work whose duration depends on the processor alone, with or without the race detector
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"
)

const (
	// blocks and starts are the work, usualBlocks and usualStarts what they take on the machine that all
	// durations were chosen on, which has usualProcessors.
	blocks, usualBlocks = 64, 100 * time.Millisecond
	starts, usualStarts = 16, 40 * time.Millisecond
	usualProcessors     = 2
	// most bounds how many times slower than usual the machine counts as: a test that is even slower fails by its
	// deadlines.
	most = 20
	// clustersPerProcessor is how many run at once on a processor of usual speed: a cluster waits most of the time.
	clustersPerProcessor = 2
	// clusterMemory is the memory of a cluster, in bytes, OLM and the test included.
	clusterMemory = 1 << 30
)

// Scale returns how long what takes d on the usual machine lasts on this one, as measured at the start of the process.
// It is never less than d. It is for durations that a test chooses, not for deadlines: see WithTimeout.
func Scale(d time.Duration) time.Duration { return time.Duration(float64(d) * bounded(this().elapsed)) }

// bounded is how many times slower than usual the machine counts as: it has fewer processors, too.
func bounded(elapsed float64) float64 {
	return min(elapsed*max(1, usualProcessors/float64(processors())), most)
}

// Parallel returns how many clusters this machine carries at once. Where its processors are slow they are fewer, but
// not by as much: tests wait for as long as they need to, and most of what they wait for is not the processor. What
// else runs here does not count: it may be the compiler of these tests, which ends soon.
func Parallel() int {
	n := max(2, int(math.Round(clustersPerProcessor*float64(processors())/math.Sqrt(this().processor))))
	if available := availableMemory(); available > 0 {
		n = min(n, int(available/clusterMemory))
	}
	return max(n, 1)
}

// clusters is how many run at once, over all test processes, once SetParallel has been called.
var clusters int

// Clusters returns how many clusters run at once: what flag -parallel of the test process states, otherwise Parallel.
func Clusters() int { return clusters }

// waiting is how many tests of a process may wait for their turn: parallel tests that wait must not keep others from
// running.
const waiting = 1000

// SetParallel sets Clusters, and lets tests wait for each other. It is to be called before the tests run.
func SetParallel() error {
	const name = "test.parallel"
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == name })
	if given {
		n, err := strconv.Atoi(flag.Lookup(name).Value.String())
		clusters = n
		return errors.Join(err, flag.Set(name, strconv.Itoa(max(n, waiting))))
	}
	clusters = Parallel()
	fmt.Fprintf(os.Stderr, "%d clusters at once: %d processors, %.1f times slower than usual\n", clusters, processors(),
		this().elapsed)
	return flag.Set(name, strconv.Itoa(waiting))
}

// processors is how many this process may use: the affinity of the process and limits of its cgroup count.
func processors() int { return runtime.GOMAXPROCS(0) }

// slowness is how many times longer work takes than on the usual machine, per processor, by the clock and in CPU time.
// It is never less than 1.
type slowness struct{ elapsed, processor float64 }

// this is the slowness of this machine at the start.
var this = sync.OnceValue(func() slowness { return sample(3, 1) })

// sample measures the machine: how long the work takes, or a part of it, in the fastest of some rounds, since other
// processes come and go.
func sample(rounds, part int) slowness {
	block := make([]byte, 1<<20)
	compute := measure(rounds, usualBlocks/time.Duration(part), func() {
		for range blocks / part {
			md5.Sum(block) //nolint:gosec // as above
		}
	})
	start := measure(rounds, usualStarts/time.Duration(part), func() {
		for range starts / part {
			_ = exec.CommandContext(context.Background(), "env").Run() //nolint:forbidigo // it ends at once
		}
	})
	return slowness{elapsed: max(1, compute.elapsed, start.elapsed),
		processor: max(1, compute.processor, start.processor)}
}

// measure returns how many times longer work takes than usual.
func measure(rounds int, usual time.Duration, work func()) slowness {
	best := slowness{elapsed: math.Inf(1), processor: math.Inf(1)}
	for range rounds {
		began, used := time.Now(), cpuTime() //nolint:forbidigo // this is what is measured
		work()
		best.elapsed = min(best.elapsed, time.Since(began).Seconds()/usual.Seconds()) //nolint:forbidigo // as above
		best.processor = min(best.processor, (cpuTime()-used).Seconds()/usual.Seconds())
	}
	return best
}

// cpuTime is what this process and those that it has waited for have used.
func cpuTime() time.Duration {
	var used time.Duration
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var usage syscall.Rusage
		if err := syscall.Getrusage(who, &usage); err == nil {
			used += time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
		}
	}
	return used
}

// availableMemory is in bytes, 0 where it is not known.
func availableMemory() int64 {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(text) {
		var kilobytes int64
		if _, err := fmt.Sscanf(string(line), "MemAvailable: %d kB", &kilobytes); err == nil {
			return kilobytes << 10
		}
	}
	return 0
}
