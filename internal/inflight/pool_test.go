package inflight

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestShares takes as much as each address can get. One does not get everything, and a few leave enough for one more.
func TestShares(t *testing.T) {
	p := newPool(24 << 20)
	take := func(address string) (taken int64) {
		for p.try(holder{address: address}, 1<<10) {
			taken += 1 << 10
		}
		return taken
	}
	if got := take("hostile-0"); got != p.largest() {
		t.Errorf("one address gets %d of %d, want %d", got, p.capacity, p.largest())
	}
	for i := range 3 {
		take(fmt.Sprint("hostile-", i+1))
	}
	// Reviews are of some ten kilobytes.
	for i := range 4 {
		if !p.try(holder{address: "api-server"}, 32<<10) {
			t.Errorf("four hostile addresses leave nothing for review %d", i)
		}
	}
	if p.try(holder{address: "hostile-0"}, 1<<10) {
		t.Error("an address that has more than its share gets more")
	}
}

// TestSmallPassesLarge has a large request wait, and a small one come after it.
func TestSmallPassesLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(100)
		if !p.try(holder{address: "a"}, 60) {
			t.Fatal("the first does not get its part")
		}
		large := make(chan error, 1)
		go func() { large <- p.acquire(t.Context(), holder{address: "a"}, 50) }()
		synctest.Wait()
		if err := p.acquire(t.Context(), holder{address: "b"}, 10); err != nil {
			t.Errorf("the small one waits behind the large one: %v", err)
		}
		select {
		case err := <-large:
			t.Fatalf("the large one got what is not there: %v", err)
		default:
		}
		p.release(holder{address: "a"}, 60)
		if err := <-large; err != nil {
			t.Errorf("the large one is not served: %v", err)
		}
		p.release(holder{address: "a"}, 50)
		p.release(holder{address: "b"}, 10)
		if used := p.used(); used != 0 || len(p.reserved) != 0 {
			t.Errorf("%d are in use by %v, want none", used, p.reserved)
		}
	})
}

// TestWaitingEnds wants no request to wait for longer than it may, nor anything to be lost when they give up.
func TestWaitingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(100)
		if !p.try(holder{address: "a"}, 60) {
			t.Fatal("the first does not get its part")
		}
		begin := time.Now()
		if err := p.acquire(t.Context(), holder{address: "a"}, 50); !errors.Is(err, ErrBusy) ||
			time.Since(begin) != time.Second {
			t.Errorf("%v after %s, want ErrBusy after a second", err, time.Since(begin))
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if err := p.acquire(gone, holder{address: "a"}, 50); !errors.Is(err, ErrBusy) {
			t.Errorf("%v for a client that is gone, want ErrBusy", err)
		}
		if err := p.acquire(t.Context(), holder{address: "a"}, 67); !errors.Is(err, ErrBusy) ||
			time.Since(begin) != time.Second {
			t.Errorf("%v for what can never be had, want ErrBusy at once", err)
		}
		p.release(holder{address: "a"}, 60)
		if p.used() != 0 || len(p.waiting) != 0 {
			t.Errorf("%d are in use and %d wait, want none", p.used(), len(p.waiting))
		}
	})
}
