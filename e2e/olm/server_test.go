package olm

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/internal/speed"
)

// output is what a Server logs.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// TestDataRaceOfOLM: a process that Go has ended for a data race is started again, whether a test asks for errors or
// not; one that ends for another reason, or that a test ends, is not.
func TestDataRaceOfOLM(t *testing.T) {
	const lives, race = "sleep 600", "echo 'fatal error: concurrent map iteration and map write' >&2; exit 2"
	for name, c := range map[string]struct {
		runs []string // what each start runs
		kill bool     // once the last runs
		fail bool
	}{
		"a race":        {runs: []string{race, lives}},
		"two":           {runs: []string{race, race, lives}},
		"another error": {runs: []string{"echo 'fatal error: all goroutines are asleep' >&2; exit 2"}, fail: true},
		"killed":        {runs: []string{race, lives}, kill: true},
	} {
		t.Run(name, func(t *testing.T) {
			log, left, dir := &output{}, slices.Clone(c.runs), t.TempDir()
			s := &Server{name: "the operator", log: log, launch: func(ctx context.Context) (*cluster.Companion, error) {
				if len(left) == 0 {
					return nil, errors.New("one start too many")
				}
				run := left[0]
				left = left[1:]
				return cluster.StartProgram(ctx, cluster.Program{Name: "operator", Path: "/bin/sh",
					Args: []string{"-c", run}, Log: filepath.Join(dir, fmt.Sprint(len(left)))})
			}}
			if err := s.run(t.Context()); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := s.Kill(); err != nil {
					t.Error(err)
				}
			})
			err := speed.Poll(t.Context(), 10*time.Millisecond, speed.Wait, func(context.Context) (bool, error) {
				return len(s.logPaths()) == len(c.runs) && (s.err() != nil) == c.fail, nil
			})
			if err != nil {
				t.Fatalf("%v: %d starts, error %v", err, len(s.logPaths()), s.err())
			}
			if got := strings.Count(log.String(), "data race"); got != len(c.runs)-1 {
				t.Errorf("it logs\n%s", log)
			}
			if c.kill {
				last := s.running
				if err := s.Kill(); err != nil {
					t.Fatal(err)
				}
				s.exited(t.Context(), last)
				if s.runs() || s.err() != nil || len(s.logPaths()) != len(c.runs) {
					t.Errorf("after it was killed: it runs %t, %v", s.runs(), s.err())
				}
			}
		})
	}
}
