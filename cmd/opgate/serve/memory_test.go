package serve

import (
	"math"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
)

func TestLimitMemory(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	for name, test := range map[string]struct {
		limit, goLimit string
		want           int64
		says           string // of the error
	}{
		"as the chart sets it": {limit: "536870912", want: 536870912 / 10 * 9},
		"none":                 {want: math.MaxInt64},
		"Go's own wins":        {limit: "536870912", goLimit: "1GiB", want: math.MaxInt64}, // the runtime has read it at the start
		"no number":            {limit: "512Mi", want: math.MaxInt64, says: `OPGATE_MEMORY_LIMIT: "512Mi"`},
		"zero":                 {limit: "0", want: math.MaxInt64, says: "OPGATE_MEMORY_LIMIT"},
	} {
		t.Run(name, func(t *testing.T) {
			debug.SetMemoryLimit(math.MaxInt64)
			t.Setenv(memoryLimitVariable, test.limit)
			t.Setenv("GOMEMLIMIT", test.goLimit)
			err := limitMemory()
			if (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
				t.Errorf("the error is %v, want %q", err, test.says)
			}
			if got := debug.SetMemoryLimit(-1); got != test.want {
				t.Errorf("the limit is %d, want %d", got, test.want)
			}
		})
	}
}

// TestGrowthPercent: the heap grows by half, and by 16 MiB at least.
func TestGrowthPercent(t *testing.T) {
	for live, want := range map[float64]int{0: 1600, 8 << 20: 200, 64 << 20: 50, 1 << 30: 50} {
		if got := growthPercent(live); got != want {
			t.Errorf("%.0f bytes in use: the heap grows by %d%%, want %d%%", live, got, want)
		}
	}
}

// TestPace: after a collection the heap grows as what is in use then demands.
func TestPace(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	pace()
	kept := make([]byte, 256<<20)
	for debug.SetGCPercent(-1) != gcPercent { // it returns the value that it replaces
		runtime.GC()
		runtime.Gosched()
	}
	runtime.KeepAlive(kept)
}
