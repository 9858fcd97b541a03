package bench

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
)

// connections is how many connections to a server are kept, at most.
const connections = 64

// server is a process that serves, and a client of it.
type server struct {
	kind    kind
	url     string
	client  *http.Client
	command *exec.Cmd
	in      io.WriteCloser
	out     *json.Decoder
	log     bytes.Buffer // to be read after the process has ended
}

// start starts a process and waits until it serves.
func start(ctx context.Context, k kind, program []string) (*server, error) {
	argument := k.floor
	if argument == "" {
		argument = fmt.Sprint(k.policies)
	}
	s := &server{kind: k, command: exec.CommandContext(ctx, program[0],
		append(program[1:len(program):len(program)], argument)...)}
	s.command.Stderr = &s.log
	var err error
	if s.in, err = s.command.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := s.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.command.Start(); err != nil {
		return nil, err
	}
	s.out = json.NewDecoder(bufio.NewReader(out))
	var r ready
	if err := s.out.Decode(&r); err != nil {
		s.end()
		return nil, fmt.Errorf("the server did not start: %w\n%s", err, s.log.String())
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(r.CA)
	s.url = "https://" + r.Address
	s.client = &http.Client{Transport: &http.Transport{ // HTTP/1.1, as API servers speak it to webhooks
		MaxIdleConnsPerHost: connections, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}
	return s, nil
}

// end ends the process.
func (s *server) end() {
	if s.client != nil {
		s.client.CloseIdleConnections()
	}
	_ = s.in.Close()     // which ends it
	_ = s.command.Wait() // nothing depends on how it ended
}

// usage asks the process what it has used.
func (s *server) usage() (*usage, error) {
	if _, err := io.WriteString(s.in, "\n"); err != nil {
		return nil, err
	}
	u := &usage{}
	return u, s.out.Decode(u)
}

// send sends a review and returns the answer.
func (s *server) send(ctx context.Context, path string, body []byte) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	answer, err := io.ReadAll(response.Body)
	err = errors.Join(err, response.Body.Close())
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("the answer is %s: %s", response.Status, answer)
	}
	return answer, err
}

// check compares verdicts: everyone allows what is allowed, and Opgate refuses the rest.
func (s *server) check(ctx context.Context, size *Size) error {
	for _, c := range []struct {
		body []byte
		want bool
	}{{size.allowed, true}, {size.denied, s.kind.floor != ""}} {
		answer, err := s.send(ctx, size.path, c.body)
		if err != nil {
			return err
		}
		var review admissionv1.AdmissionReview
		if err := json.Unmarshal(answer, &review); err != nil {
			return fmt.Errorf("the answer is not a review: %w", err)
		}
		if review.Response == nil || review.Response.Allowed != c.want {
			return fmt.Errorf("the answer is %s, want allowed %v", answer, c.want)
		}
	}
	return nil
}

var isAllowed = []byte(`"allowed":true`)

// judged sends the review that is allowed.
func (s *server) judged(ctx context.Context, size *Size) error {
	answer, err := s.send(ctx, size.path, size.allowed)
	if err == nil && !bytes.Contains(answer, isAllowed) {
		err = fmt.Errorf("the review is refused: %s", answer)
	}
	return err
}

// sequence sends reviews one after another.
func (s *server) sequence(ctx context.Context, size *Size, n int) error {
	for range n {
		if err := s.judged(ctx, size); err != nil {
			return err
		}
	}
	return nil
}

// openLoop sends reviews at the size's rate, whether or not those before are answered, and returns how long after its
// moment each was.
func (s *server) openLoop(ctx context.Context, size *Size, n int, now func() time.Time) ([]time.Duration, error) {
	latencies, failures := make([]time.Duration, n), make([]error, n)
	var sent sync.WaitGroup
	began, timer := now(), time.NewTimer(0)
	defer timer.Stop()
	for i := range n {
		due := began.Add(time.Duration(float64(i) / size.rate * float64(time.Second)))
		timer.Reset(due.Sub(now()))
		select {
		case <-ctx.Done():
			sent.Wait()
			return nil, ctx.Err()
		case <-timer.C:
		}
		sent.Go(func() {
			failures[i] = s.judged(ctx, size)
			latencies[i] = now().Sub(due)
		})
	}
	sent.Wait()
	return latencies, errors.Join(failures...)
}
