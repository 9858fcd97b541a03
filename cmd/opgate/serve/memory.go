package serve

import (
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
)

// memoryLimitVariable holds the memory limit of the container in bytes. The chart sets it from the limit itself.
const memoryLimitVariable = "OPGATE_MEMORY_LIMIT"

// gcPercent makes the collector run when the heap has grown by half. Most of the heap is the snapshot, which lives for long: with the
// default, which lets it double, a third of the memory of a large cluster would be garbage.
const gcPercent = 50

// limitMemory sets how often the runtime collects, unless GOGC does, and its soft memory limit, so that it collects before the process
// is OOM-killed. The runtime does not count all that the kernel does, so it gets nine tenths of the limit. GOMEMLIMIT, which the runtime
// reads itself, wins.
func limitMemory() error {
	if os.Getenv("GOGC") == "" {
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
