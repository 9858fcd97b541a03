package progress

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func write(t *testing.T, c *Compilation, pieces ...string) {
	t.Helper()
	for _, piece := range pieces {
		if _, err := c.Write([]byte(piece)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCompilation counts packages in the output of "go build -v", whatever its pieces, and passes everything else on.
func TestCompilation(t *testing.T) {
	var log strings.Builder
	c := &Compilation{costs: map[string]int64{"net": 10, "k8s.io/api/core/v1": 80, "main": 10}, total: 3, all: 100,
		Log: &log}
	write(t, c, "net\nk8s.io/api", "/core/v1\nnet\n# main\n", "main.go:1: something is wrong\n")
	if got := c.String(); got != ", 2 of 3 packages" {
		t.Errorf("it says %q, want no estimate", got)
	}
	if want := "net\n# main\nmain.go:1: something is wrong\n"; log.String() != want {
		t.Errorf("the log has %q, want %q", log.String(), want)
	}
	write(t, c, "main\n")
	if got := c.String(); got != ", 3 of 3 packages, linking" {
		t.Errorf("at the end it says %q", got)
	}
	if got := (&Compilation{}).String(); got != "" {
		t.Errorf("without a plan it says %q", got)
	}
}

// TestCompiledByOthers: what another build has put into the cache meanwhile has no line, and counts with what needs it.
func TestCompiledByOthers(t *testing.T) {
	c := &Compilation{costs: map[string]int64{"errors": 1, "net": 1, "net/http": 1, "main": 1}, total: 4, all: 4,
		deps: map[string][]string{"net": {"errors", "unsafe"}, "net/http": {"errors", "net"}}}
	write(t, c, "net/http\n")
	if got := c.String(); got != ", 3 of 4 packages" {
		t.Errorf("it says %q", got)
	}
}

// TestForecast: the rest takes as long as at the speed of the last minute, however fast the build was before.
func TestForecast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Compilation{costs: map[string]int64{}, total: 1000, all: 1000}
		for i := range 1000 {
			c.costs[fmt.Sprint(i)] = 1
		}
		next := 0
		during := func(d time.Duration, packages int) (last string) {
			steps := int(d / Interval)
			for range steps {
				for range packages / steps {
					write(t, c, fmt.Sprintln(next))
					next++
				}
				time.Sleep(Interval)
				last = c.String()
			}
			return last
		}
		c.String()
		for _, step := range []struct {
			d        time.Duration
			packages int
			want     string
		}{
			{d: 45 * time.Second, packages: 300, want: ", 300 of 1000 packages"}, // too early to tell
			{d: 15 * time.Second, packages: 100, want: ", 400 of 1000 packages, about 1m30s left"},
			{d: time.Minute, packages: 20, want: ", 420 of 1000 packages, about 29m0s left"},
			{d: time.Minute, want: ", 420 of 1000 packages"}, // it links
			{d: time.Minute, packages: 300, want: ", 720 of 1000 packages, about 1m0s left"},
			{d: time.Minute, packages: 280, want: ", 1000 of 1000 packages, linking"},
		} {
			if got := during(step.d, step.packages); got != step.want {
				t.Errorf("after %d packages in %s it says %q, want %q", step.packages, step.d, got, step.want)
			}
		}
	})
}

// TestPlan plans a build of what is never in the cache, and nothing where it cannot.
func TestPlan(t *testing.T) {
	command := func(args ...string) *exec.Cmd { return exec.CommandContext(t.Context(), "go", args...) }
	c := Plan(command, []string{"-trimpath", "-gcflags=all=-spectre=" + "index", "-ldflags=-X=main.x=" + t.Name()},
		"internal/cpu")
	if len(c.costs) == 0 || c.total != len(c.costs) || c.costs["internal/cpu"] <= packageCost {
		t.Errorf("it plans %v", c.costs)
	}
	if c := Plan(command, nil, "./no/such/package"); c.String() != "" {
		t.Errorf("it plans %v", c.costs)
	}
}
