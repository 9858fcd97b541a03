package serve

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
)

// memoryLimitVariable holds the memory limit of the container in bytes. The chart sets it from the limit itself.
const memoryLimitVariable = "OPGATE_MEMORY_LIMIT"

const (
	// gcPercent makes the collector run when the heap has grown by half. Most of the heap is the snapshot, which lives for long: with
	// the default, which lets it double, a third of the memory of a large cluster would be garbage.
	gcPercent = 50
	// gcGrowth is what the heap grows by at least, in bytes. Half of a small heap is the garbage of two reviews of the largest plans: a fifth
	// of the CPU time of reviews was the collector's.
	gcGrowth = 16 << 20
)

// limitMemory sets how often the runtime collects, unless GOGC does, and its soft memory limit, so that it collects before the process
// is OOM-killed. The runtime does not count all that the kernel does, so it gets nine tenths of the limit. GOMEMLIMIT, which the runtime
// reads itself, wins.
func limitMemory() error {
	if os.Getenv("GOGC") == "" {
		pace()
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

// pace sets how much the heap grows until the next collection, and again after each.
func pace() {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	debug.SetGCPercent(growthPercent(float64(live[0].Value.Uint64())))
	// The collector finds that there is no use for it, and calls pace.
	type cycle struct{ _ *byte }
	runtime.AddCleanup(&cycle{}, func(struct{}) { pace() }, struct{}{})
}

// growthPercent is how much a heap with so many bytes in use grows, relative to these.
func growthPercent(live float64) int { return int(max(gcPercent, gcGrowth*100/max(live, 1<<20))) }
