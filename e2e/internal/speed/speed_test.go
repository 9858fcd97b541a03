package speed

import (
	"runtime"
	"testing"
	"time"
)

// TestScale: durations grow with fewer processors, and never shrink.
func TestScale(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
	runtime.GOMAXPROCS(1)
	one, parallel := Scale(time.Second), Parallel()
	runtime.GOMAXPROCS(8)
	if eight := Scale(time.Second); eight < time.Second || one < eight || one > most*time.Second {
		t.Errorf("a second is %s on one processor and %s on eight", one, eight)
	}
	if n := Parallel(); parallel < 1 || n < parallel {
		t.Errorf("%d clusters run on one processor and %d on eight", parallel, n)
	}
	t.Logf("this machine is %.2f times slower than usual, its processors %.2f times", this().elapsed, this().processor)
}
