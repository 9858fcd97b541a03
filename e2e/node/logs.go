package node

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	certutil "k8s.io/client-go/util/cert"

	"github.com/opgate/opgate/e2e/cluster"
)

// logServer is the part of a kubelet that serves the logs of pods to the API server. The API server authorizes readers.
// Here clients need not authenticate: it listens on the loopback interface only, so that all clients are on this
// machine.
type logServer struct {
	node   *Node
	port   uint16
	server *http.Server
	all    sync.WaitGroup // what serves, and one for each connection
}

// startLogServer listens on the loopback interface. What follows a log ends with ctx.
func startLogServer(ctx context.Context, n *Node) (*logServer, error) {
	const host = "127.0.0.1"
	// The API server has no CA of kubelets configured, and so accepts any certificate.
	certificate, key, err := certutil.GenerateSelfSignedCertKey(host, []net.IP{net.ParseIP(host)}, nil)
	if err != nil {
		return nil, fmt.Errorf("make a serving certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("make a serving certificate: %w", err)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return nil, err
	}
	s := &logServer{node: n, port: listener.Addr().(*net.TCPAddr).AddrPort().Port()}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", s.serve)
	s.server = &http.Server{
		Handler:           mux,
		ErrorLog:          log.New(n.log, "the kubelet: ", 0),
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		// Close does not wait for what it interrupts.
		ConnState: func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				s.all.Add(1)
			case http.StateClosed:
				s.all.Done()
			default:
			}
		},
	}
	secure := tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{pair},
		MinVersion: tls.VersionTLS12})
	s.all.Go(func() {
		if err := s.server.Serve(secure); !errors.Is(err, http.ErrServerClosed) {
			fmt.Fprintf(n.log, "serve logs: %v\n", err)
		}
	})
	return s, nil
}

// stop closes all connections.
func (s *logServer) stop() error {
	err := s.server.Close()
	s.all.Wait()
	return err
}

// status is the part of the node's status that the API server needs to connect to it.
func (s *logServer) status() corev1.NodeStatus {
	return corev1.NodeStatus{
		Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: int32(s.port)}},
	}
}

// serve sends the log of a pod. Unlike a kubelet's it is that of all processes which the container has had.
func (s *logServer) serve(w http.ResponseWriter, r *http.Request) {
	name, container := r.PathValue("pod"), r.PathValue("container")
	options, err := parseLogOptions(r.URL.Query())
	if err != nil {
		refuse(w, http.StatusBadRequest, err)
		return
	}
	p := s.node.find(r.PathValue("namespace"), name)
	if p == nil {
		refuse(w, http.StatusNotFound, fmt.Errorf("pod %q does not exist", name))
		return
	}
	process, object := p.process.Load(), p.object.Load()
	if process == nil || container != object.Spec.Containers[0].Name {
		refuse(w, http.StatusBadRequest, noLog(object, container))
		return
	}
	file, err := openLog(p.log, options.lines)
	if err != nil {
		refuse(w, http.StatusInternalServerError, err)
		return
	}
	defer func() { _ = file.Close() }()
	w.Header().Set("Content-Type", "text/plain")
	if err := send(r.Context(), w, file, process, options); err != nil && r.Context().Err() == nil {
		fmt.Fprintf(s.node.log, "send the log of %s: %v\n", p, err)
	}
}

// refuse is http.Error without a line's end, which kubectl would print.
func refuse(w http.ResponseWriter, code int, err error) {
	w.Header().Set("Content-Type", "text/plain")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, err.Error()) //nolint:gosec // it is plain text, for a terminal
}

// find returns a pod, whether it has had a process or not, or nil.
func (n *Node) find(namespace, name string) *pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.pods {
		if object := p.object.Load(); object.Namespace == namespace && object.Name == name {
			return p
		}
	}
	return nil
}

// noLog is the error of a kubelet about a container that has no log.
func noLog(object *corev1.Pod, container string) error {
	statuses := object.Status.ContainerStatuses
	i := slices.IndexFunc(statuses, func(status corev1.ContainerStatus) bool { return status.Name == container })
	if i < 0 {
		return fmt.Errorf("container %q in pod %q is not available", container, object.Name)
	}
	why := " - no logs yet"
	if waiting := statuses[i].State.Waiting; waiting != nil {
		why = ": " + waiting.Reason
		if waiting.Reason == "ErrImagePull" {
			why = ": image can't be pulled"
		}
	}
	return fmt.Errorf("container %q in pod %q is waiting to start%s", container, object.Name, why)
}

// logOptions select the part of a log.
type logOptions struct {
	follow bool  // whether to follow the log until the process ends
	lines  int64 // how many of the last lines there are now, -1 for all
	bytes  int64 // the most of them that are sent
}

// parseLogOptions reads the parameters of a request. It returns an error for those that are not supported.
func parseLogOptions(query url.Values) (logOptions, error) {
	options := logOptions{lines: -1, bytes: math.MaxInt64}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		var err error
		switch value := query.Get(name); name {
		case "follow":
			options.follow, err = strconv.ParseBool(value)
		case "tailLines":
			options.lines, err = parseCount(value)
		case "limitBytes":
			options.bytes, err = parseCount(value)
		case "stream":
			if value != corev1.LogStreamAll {
				err = fmt.Errorf("this node keeps no stream %q apart, only %s", value, corev1.LogStreamAll)
			}
		default:
			err = errors.New("this node knows only follow, tailLines and limitBytes")
		}
		if err != nil {
			return logOptions{}, fmt.Errorf("parameter %s of logs: %w", name, err)
		}
	}
	return options, nil
}

func parseCount(text string) (int64, error) {
	count, err := strconv.ParseInt(text, 10, 64)
	if err == nil && count < 0 {
		err = fmt.Errorf("%d is negative", count)
	}
	return count, err
}

// openLog opens a log where its last lines begin, or where it begins if lines is negative.
func openLog(path string, lines int64) (*os.File, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if lines >= 0 {
		err = seekLastLines(file, lines)
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

// seekLastLines reads from the end of a file, which may be of any size. A line that does not end yet is one as well.
func seekLastLines(file *os.File, lines int64) error {
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil || lines == 0 {
		return err
	}
	block := make([]byte, 32<<10)
	for end := size; end > 0; {
		begin := max(0, end-int64(len(block)))
		part := block[:end-begin]
		if _, err := file.ReadAt(part, begin); err != nil {
			return err
		}
		for i, char := range slices.Backward(part) {
			next := begin + int64(i) + 1
			if char != '\n' || next == size {
				continue
			}
			if lines--; lines == 0 {
				_, err := file.Seek(next, io.SeekStart)
				return err
			}
		}
		end = begin
	}
	_, err = file.Seek(0, io.SeekStart)
	return err
}

// send sends a log from where it is open. One that is followed ends with the process, with ctx or with its limit.
func send(
	ctx context.Context, w http.ResponseWriter, file io.Reader, process *cluster.Companion, options logOptions,
) error {
	rest := &io.LimitedReader{R: file, N: options.bytes}
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for last := !options.follow; ; {
		if _, err := io.Copy(w, rest); err != nil {
			return err
		}
		// Also if there was nothing: a client that follows waits for the header.
		if err := http.NewResponseController(w).Flush(); err != nil {
			return err
		}
		if last || rest.N == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-process.Exited():
			last = true // what it has written since
		case <-ticker.C:
		}
	}
}
