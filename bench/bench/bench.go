// Package bench measures what a review costs Opgate, and servers that do less, each in its own process: CPU time and
// allocations for each decision, latency at a fixed rate, and memory. The servers take turns in rounds, in random
// order, so that what else the machine does hits all of them alike.
package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"
)

// Options configure Run.
type Options struct {
	// Program is the command line that calls Serve with the arguments that are appended to it. Required.
	Program []string
	// Rounds is how often each server has its turn. An interval needs two. Required.
	Rounds int
	// Sizes are the names of sizes. Default: all.
	Sizes []string
	// Policies are the numbers of policies that Opgate is measured with; the first and the last are compared. Default:
	// 1, 1,000, 10,000.
	Policies []int
	// Reviews is how many reviews a turn sends one after another, and again at the size's rate. Default: as each size
	// sets.
	Reviews int
	// Seed is the seed of the order of turns.
	Seed uint64
	// Revision is what was measured, for the report.
	Revision string
	// Progress is called before each round. Default: nothing is.
	Progress func(round, of int)
	// Now is the clock. Required.
	Now func() time.Time
}

// Validate returns an error that names what is missing or wrong, and sets defaults.
func (o *Options) Validate() error {
	if len(o.Program) == 0 || o.Now == nil {
		return fmt.Errorf("bench options: Program and Now are required")
	}
	if o.Rounds < 1 {
		return fmt.Errorf("bench options: %d rounds: at least 1 is needed", o.Rounds)
	}
	if o.Reviews < 0 {
		return fmt.Errorf("bench options: %d reviews: it must not be negative", o.Reviews)
	}
	for _, name := range o.Sizes {
		if sizeNamed(name) == nil {
			return fmt.Errorf("bench options: size %q is not one of %s", name, strings.Join(SizeNames(), ", "))
		}
	}
	if len(o.Sizes) == 0 {
		o.Sizes = SizeNames()
	}
	if len(o.Policies) == 0 {
		o.Policies = []int{1, 1_000, 10_000}
	}
	for _, n := range o.Policies {
		if n < 1 {
			return fmt.Errorf("bench options: %d policies: at least 1 is needed", n)
		}
	}
	return nil
}

// turn is what one turn of a server measured, of one size.
type turn struct {
	cpu, allocations, bytes float64         // for each review: seconds, a number, bytes
	latencies               []time.Duration // at the fixed rate
	resident                int64           // bytes, after the turn
}

// Run starts the servers, checks what each decides, measures them, and ends them.
func Run(ctx context.Context, o Options) (*Report, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	servers := []*server{}
	defer func() {
		for _, s := range servers {
			s.end()
		}
	}()
	for _, kind := range kindsOf(o.Policies) {
		s, err := start(ctx, kind, o.Program)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", kind, err)
		}
		servers = append(servers, s)
	}
	report := newReport(&o)
	var all []*Size
	for _, name := range o.Sizes {
		size := sizeNamed(name)
		if err := size.build(ctx); err != nil {
			return nil, fmt.Errorf("size %s: %w", name, err)
		}
		for _, s := range servers {
			if err := s.check(ctx, size); err != nil {
				return nil, fmt.Errorf("%s, size %s: %w", s.kind, name, err)
			}
		}
		all = append(all, size)
	}
	turns := map[key][]turn{}
	random := rand.New(rand.NewPCG(o.Seed, 0))
	for round := range o.Rounds {
		if o.Progress != nil {
			o.Progress(round+1, o.Rounds)
		}
		for _, size := range all {
			for _, i := range random.Perm(len(servers)) {
				s := servers[i]
				measured, err := s.turn(ctx, size, &o)
				if err != nil {
					return nil, fmt.Errorf("%s, size %s: %w", s.kind, size.Name, err)
				}
				turns[key{size.Name, s.kind.String()}] = append(turns[key{size.Name, s.kind.String()}], *measured)
			}
		}
	}
	report.fill(all, servers, turns)
	return report, nil
}

// key is a row of the table.
type key struct{ size, server string }

// turn sends reviews one after another, then at the size's rate.
func (s *server) turn(ctx context.Context, size *Size, o *Options) (*turn, error) {
	reviews, timed := size.reviews, size.timed
	if o.Reviews > 0 {
		reviews, timed = o.Reviews, o.Reviews
	}
	if err := s.sequence(ctx, size, max(1, reviews/10)); err != nil { // so that caches hold this server again
		return nil, err
	}
	before, err := s.usage()
	if err != nil {
		return nil, err
	}
	if err := s.sequence(ctx, size, reviews); err != nil {
		return nil, err
	}
	after, err := s.usage()
	if err != nil {
		return nil, err
	}
	each := float64(reviews)
	t := &turn{
		cpu:         (after.CPU - before.CPU).Seconds() / each,
		allocations: float64(after.Allocations-before.Allocations) / each,
		bytes:       float64(after.Bytes-before.Bytes) / each,
		resident:    after.Resident,
	}
	t.latencies, err = s.openLoop(ctx, size, timed, o.Now)
	return t, err
}

// load is how busy the machine is, as the kernel reports it; "" where it does not.
func load() string {
	data, err := os.ReadFile("/proc/loadavg")
	fields := strings.Fields(string(data))
	if err != nil || len(fields) < 3 {
		return ""
	}
	return strings.Join(fields[:3], " ")
}
