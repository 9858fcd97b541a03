package olm

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/internal/tail"
)

// Server is a process beside OLM's operators: a catalog, or the package server. Tests stop it to see how the rest reacts,
// and start it again. It is safe for concurrent use.
type Server struct {
	name   string
	log    io.Writer
	launch func(ctx context.Context) (*cluster.Companion, error)
	// notice waits until the cluster knows whether the process answers.
	notice func(ctx context.Context, answers bool) error

	// restarts is whether the process is started again when it ends by itself, as the kubelet does on a real cluster.
	restarts bool

	mu      sync.Mutex
	running *cluster.Companion // nil while it is stopped
	stopped chan struct{}      // closed by end
	logs    []string           // of all runs
}

// Start starts the process, unless it runs, and waits until the cluster uses it.
func (s *Server) Start(ctx context.Context) error {
	if err := s.run(ctx); err != nil {
		return fmt.Errorf("start %s: %w", s.name, err)
	}
	if err := s.notice(ctx, true); err != nil {
		return fmt.Errorf("start %s: %w", s.name, err)
	}
	fmt.Fprintf(s.log, "%s answers\n", s.name)
	return nil
}

// Stop stops the process, if it runs, and waits until the cluster has noticed. What is registered in the API server stays.
func (s *Server) Stop(ctx context.Context) error {
	if err := s.end(); err != nil {
		return err
	}
	if err := s.notice(ctx, false); err != nil {
		return fmt.Errorf("stop %s: %w", s.name, err)
	}
	fmt.Fprintf(s.log, "%s does not answer any more\n", s.name)
	return nil
}

// run starts the process unless it runs.
func (s *Server) run(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running != nil {
		return nil
	}
	return s.launchLocked(ctx)
}

// launchLocked starts the process. The caller holds the lock.
func (s *Server) launchLocked(ctx context.Context) error {
	process, err := s.launch(ctx)
	if err != nil {
		return err
	}
	s.running, s.stopped = process, make(chan struct{})
	s.logs = append(s.logs, process.LogPath())
	if s.restarts {
		go s.restart(context.WithoutCancel(ctx), process, s.stopped)
	}
	return nil
}

// restartDelay is the delay before a crashed operator is restarted, so that one that crashes at once does not do so many times
// a second.
const (
	restartDelay = 2 * time.Second
	crashLines   = 40
)

// restart starts the process again when it ends by itself.
func (s *Server) restart(ctx context.Context, ended *cluster.Companion, stopped <-chan struct{}) {
	<-ended.Exited()
	select {
	case <-stopped:
		return
	default:
	}
	fmt.Fprintf(s.log, "%s crashed and is started again:\n%s\n", s.name, tail.Crash(ended.LogPath(), crashLines))
	select {
	case <-time.After(restartDelay):
	case <-stopped:
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running != ended {
		return
	}
	s.running = nil
	if err := s.launchLocked(ctx); err != nil {
		fmt.Fprintf(s.log, "start %s again: %v\n", s.name, err)
	}
}

// end stops the process if it runs.
func (s *Server) end() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil {
		return nil
	}
	process := s.running
	s.running = nil
	close(s.stopped)
	return process.Stop()
}

// err returns an error when the process has ended by itself and is not started again.
func (s *Server) err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil || s.restarts {
		return nil
	}
	return s.running.Err()
}

// runs reports whether the process was started and not stopped since.
func (s *Server) runs() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running != nil
}

func (s *Server) logPaths() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.logs...)
}
