package olm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
)

// services let OLM connect to the Services of catalogs, whose names resolve nowhere here and which no node routes. OLM
// connects to catalogs by a SOCKS5 proxy (RFC 1928) where variable GRPC_PROXY names one, and has it resolve the names.
type services struct {
	listener net.Listener

	mu        sync.Mutex
	addresses map[string]string // by host and port of a Service
}

func startServices(ctx context.Context) (*services, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("play the Services of catalogs: %w", err)
	}
	s := &services{listener: listener, addresses: map[string]string{}}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // it is closed
			}
			// A connection that fails is one that OLM tries again.
			go func() { _ = s.forward(context.WithoutCancel(ctx), conn) }()
		}
	}()
	return s, nil
}

// stop ends what accepts connections. Those that are open end with the catalogs.
func (s *services) stop() { _ = s.listener.Close() }

// variables are those by which OLM knows the proxy. What NO_PROXY has on this machine is not for Services.
func (s *services) variables() []string {
	return []string{"GRPC_PROXY=socks5://" + s.listener.Addr().String(), "NO_PROXY=127.0.0.1"}
}

// add makes a Service, such as "catalog.olm.svc:50051", lead to an address.
func (s *services) add(service, address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addresses[service] = address
}

// forward serves one connection, and closes it.
func (s *services) forward(ctx context.Context, from net.Conn) error {
	defer func() { _ = from.Close() }()
	service, err := requested(from)
	if err != nil {
		return err
	}
	s.mu.Lock()
	address := s.addresses[service]
	s.mu.Unlock()
	to, err := (&net.Dialer{}).DialContext(ctx, "tcp", address) // fails for "" as well
	if err != nil {
		_, _ = from.Write([]byte{5, 5, 0, 1, 0, 0, 0, 0, 0, 0}) // refused
		return err
	}
	defer func() { _ = to.Close() }()
	if _, err := from.Write([]byte{5, 0, 0, 1, 0, 0, 0, 0, 0, 0}); err != nil { // connected
		return err
	}
	go func() {
		_, _ = io.Copy(to, from)
		_ = to.Close() // ends the other direction
	}()
	_, err = io.Copy(from, to)
	return err
}

// requested reads which host and port a client of SOCKS5 asks for, by name and without authentication.
func requested(client io.ReadWriter) (string, error) {
	next := func(n int) ([]byte, error) {
		bytes := make([]byte, n)
		_, err := io.ReadFull(client, bytes)
		return bytes, err
	}
	greeting, err := next(2) // the version and how many methods of authentication follow
	if err != nil {
		return "", err
	}
	if _, err := next(int(greeting[1])); err != nil {
		return "", err
	}
	if _, err := client.Write([]byte{5, 0}); err != nil { // none of them
		return "", err
	}
	request, err := next(5) // the version, connect, 0, a name, its length
	if err != nil {
		return "", err
	}
	if [4]byte(request) != [4]byte{5, 1, 0, 3} {
		return "", errors.New("the request is not to connect to a name")
	}
	rest, err := next(int(request[4]) + 2)
	if err != nil {
		return "", err
	}
	name, port := rest[:request[4]], rest[request[4]:]
	return net.JoinHostPort(string(name), strconv.Itoa(int(port[0])<<8|int(port[1]))), nil
}
