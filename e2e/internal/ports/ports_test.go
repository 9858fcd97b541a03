package ports

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// variable makes the test binary reserve ports until its input ends. It prints their addresses, one a line.
const variable = "OPGATE_E2E_RESERVE"

const reservedByEach = 50

func TestMain(m *testing.M) {
	if os.Getenv(variable) == "" {
		os.Exit(m.Run())
	}
	var mine Reservations
	for range reservedByEach {
		addresses, err := mine.Take(context.Background(), 1)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(addresses[0])
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // until it is killed
}

// TestProcesses has processes, and clusters of one process, reserve ports at the same time: each gets its own. The
// ports of a process that is killed are free again.
func TestProcesses(t *testing.T) {
	const processes, clusters = 8, 20
	var (
		mu    sync.Mutex
		owner = map[string]string{}
		all   sync.WaitGroup
		kill  []func() error
	)
	own := func(name, address string) {
		mu.Lock()
		defer mu.Unlock()
		if other, taken := owner[address]; taken {
			t.Errorf("%s has %s, which %s has as well", name, address, other)
		}
		owner[address] = name
	}
	for i := range processes {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), variable+"=1")
		cmd.Stderr = os.Stderr
		input, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		output, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = input.Close()
			_ = cmd.Wait()
		})
		kill = append(kill, func() error { return errors.Join(cmd.Process.Kill(), ignoreExit(cmd.Wait())) })
		all.Go(func() {
			lines := bufio.NewScanner(output)
			for range reservedByEach {
				if !lines.Scan() {
					t.Errorf("process %d ended", i)
					return
				}
				own(fmt.Sprint("process ", i), lines.Text())
			}
		})
	}
	for i := range clusters {
		var mine Reservations
		t.Cleanup(func() {
			if err := mine.Release(); err != nil {
				t.Error(err)
			}
		})
		all.Go(func() {
			addresses, err := mine.Take(t.Context(), reservedByEach)
			if err != nil {
				t.Error(err)
			}
			for _, address := range addresses {
				own(fmt.Sprint("cluster ", i), address)
			}
		})
	}
	all.Wait()
	if len(owner) != (processes+clusters)*reservedByEach {
		t.Errorf("%d addresses", len(owner))
	}
	for _, end := range kill {
		if err := end(); err != nil {
			t.Fatal(err)
		}
	}
	var left []string
	for address, name := range owner {
		if strings.HasPrefix(name, "process") {
			left = append(left, address)
		}
	}
	wantFree(t, left)
}

func ignoreExit(err error) error {
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return nil
	}
	return err
}

// wantFree wants that addresses can be reserved again. Other tests on this machine may have some of them by now.
func wantFree(t *testing.T, addresses []string) {
	t.Helper()
	var last error
	for _, address := range addresses {
		held, err := reserve(t.Context(), address)
		if err == nil {
			_ = held.Close()
			return
		}
		last = err
	}
	t.Errorf("none of %d addresses is free again: %v", len(addresses), last)
}

// TestRestart: a program may listen on its port, end, and listen again, and no other reservation gets the port
// meanwhile.
func TestRestart(t *testing.T) {
	var mine Reservations
	addresses, err := mine.Take(t.Context(), reservedByEach)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", addresses[0])
		if err != nil {
			t.Fatal(err)
		}
		if err := listener.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := reserve(t.Context(), addresses[0]); err == nil {
			t.Error("it is reserved twice")
		}
	}
	if err := mine.Release(); err != nil {
		t.Fatal(err)
	}
	wantFree(t, addresses)
}

// TestLeftRunning: what listens without a reservation, such as what a killed harness leaves running, keeps its port, on
// every interface.
func TestLeftRunning(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "0.0.0.0"} {
		listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", net.JoinHostPort(host, "0"))
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(listener.Addr().String())
		if _, err := reserve(t.Context(), "127.0.0.1:"+port); err == nil {
			t.Errorf("the port of %s is reserved", listener.Addr())
		}
		_ = listener.Close()
	}
}

func TestBelow(t *testing.T) {
	for text, want := range map[string]string{
		"32768\t60999\n": "20000 10000",
		"49152 65535":    "20000 10000",
		"10000 65535":    "1024 8976",
		"25000 65535":    "15000 10000",
		"1024 65535":     "set net.ipv4.ip_local_port_range to begin at 30000",
		"2023 65535":     "leaves too few",
		"garbage":        "read /proc/sys/net/ipv4/ip_local_port_range",
	} {
		first, size, err := below(text)
		got := fmt.Sprint(first, " ", size)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}
