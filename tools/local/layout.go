// Package local keeps one control plane with Opgate running in the background of a checkout, for people to try things
// on.
package local

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gofrs/flock"

	"github.com/opgate/opgate/e2e/assets/repo"
)

// layout is where things are in the directory that belongs to Up and Down.
type layout struct {
	dir string
}

func findLayout() (layout, error) {
	checkout, err := repo.Find()
	return layout{dir: checkout.Local()}, err
}

// kubeconfig has the contexts admin, tenant and olm.
func (l layout) kubeconfig() string { return filepath.Join(l.dir, "kubeconfig") }

// bin is for people's PATH.
func (l layout) bin() string { return filepath.Join(l.dir, "bin") }

// example is a policy to start with, where OLM runs.
func (l layout) example() string { return filepath.Join(l.dir, "etcd.yaml") }

// next states what to do next, as Up prints it.
func (l layout) next() string { return filepath.Join(l.dir, "next.txt") }

// log has the output of the background process.
func (l layout) log() string { return filepath.Join(l.dir, "local.log") }

// run belongs to the cluster.
func (l layout) run() string { return filepath.Join(l.dir, "run") }

// lock is held by the background process while it lives, and states which process that is.
func (l layout) lock() string { return filepath.Join(l.dir, "lock") }

// holder returns the process that holds the lock. It is 0 in the moment between its taking the lock and its saying so.
func (l layout) holder() (pid int) {
	data, err := os.ReadFile(l.lock())
	if err != nil {
		return 0
	}
	pid, err = strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return 0
	}
	return pid
}

// tryLock takes the lock, or reports that another process holds it. The caller must close lock, held or not.
func (l layout) tryLock() (lock *flock.Flock, held bool, err error) {
	if err := os.MkdirAll(l.dir, 0o750); err != nil {
		return nil, false, err
	}
	for {
		lock = flock.New(l.lock())
		locked, err := lock.TryLock()
		switch {
		case err != nil:
			return nil, false, fmt.Errorf("lock %s: %w", lock.Path(), err)
		case !locked:
			return lock, true, nil
		}
		// Down may have removed the file between our open and our lock: take the lock on the file that has the name
		// now.
		if ours, err := lock.Stat(); err == nil {
			if named, err := os.Stat(l.lock()); err == nil && os.SameFile(ours, named) {
				return lock, false, nil
			}
		}
		_ = lock.Close()
	}
}
