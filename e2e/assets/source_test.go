package assets

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gofrs/flock"
)

// lines are what a build logs, one by one.
type lines struct {
	line chan string
}

func (l *lines) Write(p []byte) (int, error) {
	l.line <- string(p)
	return len(p), nil
}

// TestWaitShowsProgress: who waits for another process's build is shown how far that is.
func TestWaitShowsProgress(t *testing.T) {
	dir := t.TempDir()
	other := flock.New(filepath.Join(dir, "lock"))
	if locked, err := other.TryLock(); err != nil || !locked {
		t.Fatal(locked, err)
	}
	far := filepath.Join(dir, "it.progress")
	const line = "building kube-apiserver 1/3 from source (once): 5m15s, 310 of 1240 packages, about 12m30s left"
	if err := os.WriteFile(far, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	log := &lines{line: make(chan string)}
	done := make(chan error, 1)
	own := flock.New(other.Path())
	t.Cleanup(func() { _ = own.Close() })
	go func() { done <- source{log: log}.wait(t.Context(), own, far) }()
	if got := <-log.line; !strings.Contains(got, line) {
		t.Errorf("it says %q", got)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil || !own.Locked() {
		t.Errorf("when the other is done: %v, locked %t", err, own.Locked())
	}
}
