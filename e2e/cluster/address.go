package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// Ports are taken from below the ranges that systems use for outgoing connections (from 32768 on Linux, from 49152
// elsewhere). There, a client on this machine could take a port between this check and Opgate's listen.
const (
	firstPort = 20000
	lastPort  = 32000
	// portAttempts bounds the search for one free port.
	portAttempts = 100
)

// freeAddresses returns n distinct addresses on the loopback interface that no process listens on.
func freeAddresses(ctx context.Context, n int) ([]string, error) {
	listeners := make([]net.Listener, 0, n)
	defer func() {
		for _, listener := range listeners {
			_ = listener.Close()
		}
	}()
	addresses := make([]string, 0, n)
	for range n {
		// All listeners stay open until the end, so that no address comes up twice.
		listener, err := listenAnywhere(ctx)
		if err != nil {
			return nil, err
		}
		listeners = append(listeners, listener)
		addresses = append(addresses, listener.Addr().String())
	}
	return addresses, nil
}

func listenAnywhere(ctx context.Context) (net.Listener, error) {
	var (
		config net.ListenConfig
		errs   []error
	)
	for range portAttempts {
		port := firstPort + rand.IntN(lastPort-firstPort)
		listener, err := config.Listen(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			return listener, nil
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("find a free port: %w", errors.Join(errs...))
}
