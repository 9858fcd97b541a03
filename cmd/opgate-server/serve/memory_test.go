package serve

import (
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
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
		// the runtime has read it at the start
		"Go's own wins": {limit: "536870912", goLimit: "1GiB", want: math.MaxInt64},
		"no number":     {limit: "512Mi", want: math.MaxInt64, says: `OPGATE_MEMORY_LIMIT: "512Mi"`},
		"zero":          {limit: "0", want: math.MaxInt64, says: "OPGATE_MEMORY_LIMIT"},
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

// TestGrowth: the heap grows by half of what is in use, and by 16 MiB at least, whatever it was before.
func TestGrowth(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	defer func() { ballast = nil }()
	t.Setenv("GOGC", "")
	if err := limitMemory(); err != nil {
		t.Fatal(err)
	}
	for _, kept := range [][]byte{nil, make([]byte, 128<<20), nil} {
		runtime.GC()
		sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/goal:bytes"}}
		metrics.Read(sample)
		live, goal := sample[0].Value.Uint64(), sample[1].Value.Uint64()
		most := live + live*gcPercent/100 + 4<<20 // stacks and globals count as well
		if goal < live+gcGrowth || goal > most {
			t.Errorf("%d MiB in use: the heap grows to %d MiB, want %d to %d", live>>20, goal>>20, (live+gcGrowth)>>20,
				most>>20)
		}
		runtime.KeepAlive(kept)
	}
}
