package serve

import (
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
)

// memoryLimitVariable holds the memory limit of the container in bytes. The chart sets it from the limit itself.
const memoryLimitVariable = "OPGATE_MEMORY_LIMIT"

const (
	// gcPercent makes the collector run when the heap has grown by half. Most of the heap is the snapshot, which lives
	// for long: with the default, which lets it double, a third of the memory of a large cluster would be garbage.
	gcPercent = 50
	// gcGrowth is what the heap grows by at least, in bytes. Half of a small heap is the garbage of two reviews of the
	// largest plans: a fifth of the CPU time of reviews was the collector's.
	gcGrowth = 16 << 20
)

// ballast is never read or written, so it is memory for the collector and none for the kernel: gcPercent of it is
// gcGrowth. A percentage that is set anew after each collection would do the same at rest, and let the heap of a small
// process triple while many large requests arrive at once, before it is set again.
var ballast []byte //nolint:unused // that is its use

// limitMemory sets how often the runtime collects, unless GOGC does, and its soft memory limit, so that it collects
// before the process is OOM-killed. The runtime does not count all that the kernel does, so it gets nine tenths of the
// limit. GOMEMLIMIT, which the runtime reads itself, wins.
func limitMemory() error {
	if os.Getenv("GOGC") == "" {
		ballast = make([]byte, gcGrowth*100/gcPercent)
		debug.SetGCPercent(gcPercent)
	}
	text := os.Getenv(memoryLimitVariable)
	if text == "" || os.Getenv("GOMEMLIMIT") != "" {
		return nil
	}
	limit, err := strconv.ParseInt(text, 10, 64)
	if err != nil || limit <= 0 {
		return fmt.Errorf("%s: %q is not a number of bytes", memoryLimitVariable, text)
	}
	debug.SetMemoryLimit(limit / 10 * 9)
	return nil
}
