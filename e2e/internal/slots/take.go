package slots

import (
	"strings"
	"sync"
	"testing"

	"github.com/opgate/opgate/e2e/internal/speed"
)

// taken are the slots of this process, by top-level test.
var taken = struct {
	mu     sync.Mutex
	byTest map[string]*slot
}{byTest: map[string]*slot{}}

// slot is shared by the subtests of a test: one that waited for a second slot while it holds the first could wait
// forever.
type slot struct {
	once    sync.Once
	release func() error
	err     error
	users   int
}

// Take waits until the test may run a cluster, and releases its slot after the test. As many tests hold one as
// speed.Clusters allows, over all test processes.
func Take(t testing.TB) {
	t.Helper()
	name, _, _ := strings.Cut(t.Name(), "/")
	taken.mu.Lock()
	s := taken.byTest[name]
	if s == nil {
		s = &slot{}
		taken.byTest[name] = s
	}
	s.users++
	taken.mu.Unlock()
	t.Cleanup(func() {
		taken.mu.Lock()
		defer taken.mu.Unlock()
		if s.users--; s.users > 0 {
			return
		}
		delete(taken.byTest, name)
		if s.release == nil {
			return
		}
		if err := s.release(); err != nil {
			t.Error(err)
		}
	})
	s.once.Do(func() { s.release, s.err = acquire(t) })
	if s.err != nil {
		t.Fatal(s.err)
	}
}

func acquire(t testing.TB) (release func() error, err error) {
	dir, err := Dir()
	if err != nil {
		return nil, err
	}
	return Acquire(t.Context(), dir, speed.Clusters())
}
