// Package ports reserves TCP ports of the loopback interface for programs that can neither bind port 0 nor inherit a
// listener.
//
// The reservation of a port is the UDP socket of the same number, which no program here uses. The kernel lets one
// process bind it, of any user and any checkout on this machine, and closes it when that process ends, however it ends.
// So two clusters never have the same port, and a port stays a cluster's while the program that listens there is
// restarted. What such a program leaves running when its harness is killed still listens, and its port is not taken.
package ports

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
)

const (
	host = "127.0.0.1"
	// begin and end are where ports are taken from, end excluded, unless outgoing connections have them.
	begin, end = 20000, 30000
	// privileged is the first port that every user may bind, fewest the smallest range to look for a free one in.
	privileged, fewest = 1024, 1000
)

// rangeFile has the range of ports that the kernel takes for outgoing connections, and for programs that bind port 0.
// It is missing on systems other than Linux, where the range begins at 49152.
const rangeFile = "/proc/sys/net/ipv4/ip_local_port_range"

// Reservations are the ports of a cluster. The zero value has none.
type Reservations struct {
	mu   sync.Mutex
	held []net.PacketConn
}

// Take returns n more addresses, each a host and a port. They are the caller's until Release.
func (r *Reservations) Take(ctx context.Context, n int) ([]string, error) {
	first, size, err := span()
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var (
		addresses []string
		last      error
	)
	for offset, i := rand.IntN(size), 0; len(addresses) < n; i++ {
		if i == size {
			return nil, fmt.Errorf("none of the %d ports from %d on is free: %w", size, first, last)
		}
		address := net.JoinHostPort(host, strconv.Itoa(first+(offset+i)%size))
		held, err := reserve(ctx, address)
		if err != nil {
			last = err
			continue
		}
		r.held = append(r.held, held)
		addresses = append(addresses, address)
	}
	return addresses, nil
}

// Release ends the reservations. What listens on the ports must have ended.
func (r *Reservations) Release() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for _, held := range r.held {
		errs = append(errs, held.Close())
	}
	r.held = nil
	return errors.Join(errs...)
}

// reserve returns an error if another process has reserved the port, or listens there without a reservation.
func reserve(ctx context.Context, address string) (net.PacketConn, error) {
	var config net.ListenConfig
	held, err := config.ListenPacket(ctx, "udp", address)
	if err != nil {
		return nil, err
	}
	listener, err := config.Listen(ctx, "tcp", address)
	if err == nil {
		err = listener.Close()
	}
	if err != nil {
		return nil, errors.Join(err, held.Close())
	}
	return held, nil
}

// span returns the first port to take, and the number of those that follow, below the range of outgoing connections.
func span() (first, size int, err error) {
	text, err := os.ReadFile(rangeFile)
	if errors.Is(err, os.ErrNotExist) {
		return begin, end - begin, nil
	}
	if err != nil {
		return 0, 0, fmt.Errorf("reserve ports: %w", err)
	}
	return below(string(text))
}

// below is span for the content of rangeFile.
func below(text string) (first, size int, err error) {
	var lowest, highest int
	if _, err := fmt.Sscan(text, &lowest, &highest); err != nil {
		return 0, 0, fmt.Errorf("reserve ports: read %s: %w", rangeFile, err)
	}
	last := min(lowest, end)
	first = max(privileged, last-(end-begin))
	if last-first < fewest {
		return 0, 0, fmt.Errorf(
			"reserve ports: outgoing connections may have ports %d to %d, which leaves too few below: "+
				"set net.ipv4.ip_local_port_range to begin at %d", lowest, highest, end)
	}
	return first, last - first, nil
}
