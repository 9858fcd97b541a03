package olm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/opgate/opgate/e2e/cluster"
)

// Server is a process beside OLM's operators: a catalog, or the package server. Tests stop it to see how the rest
// reacts, and start it again. It is safe for concurrent use.
type Server struct {
	name   string
	log    io.Writer
	launch func(ctx context.Context) (*cluster.Companion, error)
	// notice waits until the cluster knows whether the process answers.
	notice func(ctx context.Context, answers bool) error
	// write makes packages what a catalog serves from its next start on.
	write func(packages []Package) error

	mu      sync.Mutex
	running *cluster.Companion // nil while it is stopped
	ended   error              // how it has ended by itself
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

// Stop stops the process, if it runs, and waits until the cluster has noticed. What is registered in the API server
// stays.
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

// Publish makes a catalog serve other packages. OLM notices that it goes and comes back.
func (s *Server) Publish(ctx context.Context, packages ...Package) error {
	if err := s.Stop(ctx); err != nil {
		return err
	}
	if err := s.write(packages); err != nil {
		return err
	}
	return s.Start(ctx)
}

// Signal sends a signal to the process, if it runs.
func (s *Server) Signal(sig os.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil {
		return nil
	}
	return s.running.Signal(sig)
}

// Kill ends the process at once, if it runs. Start starts it again.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil {
		return nil
	}
	process := s.running
	s.running, s.ended = nil, nil
	return process.Kill()
}

// run starts the process unless it runs.
func (s *Server) run(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running != nil {
		return nil
	}
	return s.begin(ctx)
}

// begin starts the process. The caller holds mu.
func (s *Server) begin(ctx context.Context) error {
	process, err := s.launch(ctx)
	if err != nil {
		return err
	}
	s.running, s.ended = process, nil
	s.logs = append(s.logs, process.LogPath())
	go func() {
		<-process.Exited()
		s.exited(context.WithoutCancel(ctx), process)
	}()
	return nil
}

// mapRace is in the log of a process that Go has ended for a data race. OLM 0.46 seems to have one: it was ended while it
// read the annotations of an OperatorGroup in its cache (NewOperatorGroup).
const mapRace = "fatal error: concurrent map"

// exited notes that a process has ended by itself. After mapRace it starts the process again, as a kubelet does: that is
// no failure of what is tested.
func (s *Server) exited(ctx context.Context, process *cluster.Companion) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running != process { // it was stopped
		return
	}
	log, err := os.ReadFile(process.LogPath())
	if bytes.Contains(log, []byte(mapRace)) {
		fmt.Fprintf(s.log, "%s is started again after a data race of its own\n", s.name)
		if err = s.begin(ctx); err == nil {
			return
		}
	}
	s.ended = errors.Join(process.Err(), err)
}

// end stops the process if it runs.
func (s *Server) end() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil {
		return nil
	}
	process := s.running
	s.running, s.ended = nil, nil
	return process.Stop()
}

// err returns an error when the process has ended by itself, and runs no more.
func (s *Server) err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
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
