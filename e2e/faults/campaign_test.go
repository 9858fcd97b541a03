package faults

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opgate/opgate/e2e/harness"
)

var (
	all  = flag.Bool("all", false, "play all schedules, not only those of the short form")
	only = flag.String("only", "", "comma-separated IDs of the schedules to play")
	seed = flag.Uint64("seed", 1, "seed of the order of schedules, and of all durations that vary")
	// limit is how long an allowed version may wait for its approval once a fault has ended.
	limit = flag.Duration("deadline", time.Minute, "time to recover after a fault, on a machine of usual speed")
)

// clusters is how many installations share the schedules of the long form.
const clusters = 2

var planName = regexp.MustCompile(`install-[a-z0-9]{5}\b`)

// TestFaults plays schedules, one after the other on each installation. These are its own, since schedules pause and kill
// all that runs there.
func TestFaults(t *testing.T) {
	t.Parallel()
	chosen, installations := choose(), 1
	if *all {
		installations = clusters
	}
	tests := map[string]func(*testing.T){}
	for i := range installations {
		var mine []schedule
		for j := i; j < len(chosen); j += installations {
			mine = append(mine, chosen[j])
		}
		tests[fmt.Sprintf("installation %d", i+1)] = func(t *testing.T) {
			s := start(t)
			for _, row := range mine {
				t.Run(row.id, func(t *testing.T) { s.play(t, row) })
			}
		}
	}
	harness.Together(t, tests)
}

// choose returns the schedules to play, in the order that the seed states. Those after which OLM has to begin anew are
// the last ones.
func choose() []schedule {
	chosen := slices.DeleteFunc(slices.Clone(schedules), func(row schedule) bool {
		if *only != "" {
			// those that are expected to fail can be asked for
			return !slices.Contains(strings.Split(*only, ","), row.id)
		}
		return !row.short && !*all || slices.Contains(expected, row.id)
	})
	rand.New(rand.NewPCG(*seed, 0)).Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
	slices.SortStableFunc(chosen, func(a, b schedule) int {
		switch {
		case a.last == b.last:
			return 0
		case b.last:
			return -1
		}
		return 1
	})
	return chosen
}
