package packages

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/olm"
)

var (
	anyCatalog = olm.Catalog{}
	community  = olm.Catalog{Namespace: "olm", Name: "community"}
	vendor     = olm.Catalog{Namespace: "olm", Name: "vendor"}
	errDown    = errors.New("service unavailable")
)

// server is a package server with settable answers that records the time of each request.
type server struct {
	mu       sync.Mutex
	answer   func(q query) (*catalog.Package, error)
	requests []time.Duration
	begun    time.Time
	changed  []string
}

func (s *server) fetch(_ context.Context, q query) (*catalog.Package, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, time.Since(s.begun))
	return s.answer(q)
}

// say sets the response.
func (s *server) say(answer func(q query) (*catalog.Package, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

// seen returns the requests and changes since the last call.
func (s *server) seen() (requests []time.Duration, changed []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	requests, changed = s.requests, s.changed
	s.requests, s.changed = nil, nil
	return requests, changed
}

func down(query) (*catalog.Package, error) { return nil, errDown }

func absent(query) (*catalog.Package, error) { return nil, errAbsent }

func with(channel string) func(q query) (*catalog.Package, error) {
	return func(q query) (*catalog.Package, error) {
		return &catalog.Package{Name: q.pkg, Catalog: community, DefaultChannel: channel}, nil
	}
}

// start runs a cache against a server, in fake time.
func start(t *testing.T, answer func(q query) (*catalog.Package, error)) (*Cache, *server) {
	t.Helper()
	s := &server{answer: answer, begun: time.Now()}
	c := New(Options{Now: time.Now, Changed: func(pkg string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.changed = append(s.changed, pkg)
	}})
	c.fetch = s.fetch
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return c, s
}

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestGetFetchesOnceAndThenRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := start(t, with("stable"))
		pass(time.Hour)
		if requests, _ := s.seen(); len(requests) > 0 {
			t.Fatalf("requests before the first Get: %v", requests)
		}
		if got := c.Get("etcd", anyCatalog); got != nil {
			t.Fatalf("Get = %v before a request", got)
		}
		synctest.Wait()
		for range 100 {
			if got := c.Get("etcd", anyCatalog); got == nil || got.DefaultChannel != "stable" {
				t.Fatalf("Get = %v", got)
			}
			pass(time.Hour)
		}
		requests, changed := s.seen()
		if len(requests) != 1 || len(changed) != 1 || changed[0] != "etcd" {
			t.Fatalf("requests %v, changes %v; want one of each", requests, changed)
		}
	})
}

func TestRetriesBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := start(t, down)
		for range 20 {
			c.Get("etcd", anyCatalog) // keeps it wanted
			pass(time.Minute)
		}
		requests, changed := s.seen()
		want := []time.Duration{0, 1, 3, 7, 15, 31, 63, 127, 255, 511, 811, 1111}
		for i := range want {
			want[i] *= time.Second
		}
		if diff := cmp.Diff(want, requests); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
		if len(changed) > 0 {
			t.Errorf("changes %v without any answer", changed)
		}
		s.say(with("stable"))
		c.Get("etcd", anyCatalog)
		pass(lastRetry)
		if c.Get("etcd", anyCatalog) == nil {
			t.Error("not known although the server is back")
		}
	})
}

func TestRetriesEndWhenNotWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := start(t, down)
		c.Get("etcd", anyCatalog)
		pass(wantedFor + lastRetry)
		s.seen()
		pass(24 * time.Hour)
		if requests, _ := s.seen(); len(requests) > 0 {
			t.Errorf("requests although not wanted: %v", requests)
		}
		if len(c.entries) > 0 {
			t.Errorf("%d entries are kept", len(c.entries))
		}
		c.Get("etcd", anyCatalog)
		synctest.Wait()
		if requests, _ := s.seen(); len(requests) != 1 {
			t.Errorf("asking again led to requests %v, want one", requests)
		}
	})
}

func TestCatalogChangedFetchesSoonAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := start(t, with("stable"))
		c.Get("etcd", community)
		c.Get("redis", vendor)
		pass(time.Minute)
		s.seen()
		begun := time.Since(s.begun)

		c.CatalogChanged(community)
		pass(time.Second)
		s.say(with("fast")) // the package server lags behind
		pass(time.Hour)
		requests, changed := s.seen()
		if diff := cmp.Diff([]time.Duration{begun + settling, begun + 30*time.Second}, requests); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"etcd"}, changed); diff != "" {
			t.Errorf("changes (-want +got):\n%s", diff)
		}
		if got := c.Get("etcd", community); got.DefaultChannel != "fast" {
			t.Errorf("Get = %v", got)
		}
	})
}

func TestCatalogChangedEndsThePauseBeforeARetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := start(t, absent)
		for range 10 {
			c.Get("etcd", anyCatalog)
			pass(time.Minute)
		}
		s.say(with("stable"))
		c.CatalogChanged(vendor)
		pass(time.Second)
		if c.Get("etcd", anyCatalog) == nil {
			t.Error("a package that was missing from every catalog is not looked for in a catalog that changed")
		}
	})
}

// A catalog that changes all the time must not make a request each time.
func TestCatalogChangedAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := start(t, with("stable"))
		c.Get("etcd", community)
		pass(time.Second)
		s.seen()
		for range 1000 {
			c.CatalogChanged(community)
			pass(10 * time.Millisecond)
		}
		if requests, _ := s.seen(); len(requests) > 11 {
			t.Errorf("%d requests in 10 s", len(requests))
		}
	})
}

func TestLastGoodContentStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := start(t, with("stable"))
		c.Get("etcd", community)
		synctest.Wait()
		s.say(down)
		c.CatalogChanged(community)
		for range 60 {
			pass(time.Minute)
			if c.Get("etcd", community) == nil {
				t.Fatal("the last good content is gone")
			}
		}
	})
}

func TestPackageThatLeftItsCatalog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := start(t, with("stable"))
		c.Get("etcd", community)
		synctest.Wait()
		s.seen()
		s.say(absent)
		c.CatalogChanged(community)
		pass(10 * time.Second)
		if c.Get("etcd", community) == nil {
			t.Fatal("given up after a moment: a package server that has just started knows nothing")
		}
		for range 5 {
			c.Get("etcd", community)
			pass(time.Minute)
		}
		if got := c.Get("etcd", community); got != nil {
			t.Errorf("still known: %v", got)
		}
		if _, changed := s.seen(); len(changed) != 1 {
			t.Errorf("changes %v, want one", changed)
		}
	})
}

func TestSlowAnswersDoNotDelayOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := start(t, nil)
		c.fetch = func(ctx context.Context, q query) (*catalog.Package, error) {
			if q.pkg == "slow" {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return with("stable")(q)
		}
		c.Get("slow", anyCatalog)
		c.Get("etcd", anyCatalog)
		synctest.Wait()
		if c.Get("etcd", anyCatalog) == nil {
			t.Error("etcd waits for a package that hangs")
		}
		pass(timeout + time.Second)
		if c.Get("slow", anyCatalog) != nil {
			t.Error("an answer although the request timed out")
		}
	})
}

func TestMemoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := start(t, with("stable"))
		for i := range 5 * maxEntries {
			c.Get(fmt.Sprintf("package-%d", i), anyCatalog)
			if i%100 == 0 {
				pass(time.Second)
			}
		}
		pass(time.Minute)
		if len(c.entries) > maxEntries {
			t.Errorf("%d entries", len(c.entries))
		}
	})
}

// A flood of names, for example of Subscriptions that are created and refused, must not fill the queue while the
// package server hangs.
func TestQueueIsBounded(t *testing.T) {
	c := New(Options{Now: time.Now})
	defer c.queue.ShutDown()
	for i := range 5 * maxEntries {
		c.Get(fmt.Sprintf("package-%d", i), anyCatalog)
	}
	if n := c.queue.Len(); n > maxEntries {
		t.Errorf("%d queries in the queue", n)
	}
}

// A retry that was queued when a changed catalog ended the outage must not fetch again.
func TestNoFetchAfterRecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := start(t, down)
		for range 5 {
			c.Get("etcd", community)
			pass(time.Minute)
		}
		s.say(with("stable"))
		c.CatalogChanged(community)
		pass(time.Minute)
		s.seen()
		pass(time.Hour)
		if requests, _ := s.seen(); len(requests) > 0 {
			t.Errorf("requests at rest: %v", requests)
		}
	})
}

func TestManyAskAtOnce(t *testing.T) {
	c := New(Options{Now: time.Now, Changed: func(string) {}})
	c.fetch = func(_ context.Context, q query) (*catalog.Package, error) {
		if len(q.pkg)%2 == 0 {
			return nil, errDown
		}
		return with("stable")(q)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() { _ = c.Start(ctx) })
	var askers sync.WaitGroup
	for i := range 8 {
		askers.Go(func() {
			for j := range 500 {
				pkg := fmt.Sprintf("package-%d", (i+j)%40)
				c.Get(pkg, community)
				if j%50 == 0 {
					c.CatalogChanged(community)
				}
			}
		})
	}
	askers.Wait()
	cancel()
	all.Wait()
}

// A plan can have a version before the package server, which follows its catalog with a delay, does.
func TestVersionThatTheServerDoesNotHaveYet(t *testing.T) {
	having := func(csvs ...string) func(query) (*catalog.Package, error) {
		return func(q query) (*catalog.Package, error) {
			channel := catalog.Channel{Name: "stable"}
			for _, name := range csvs {
				channel.Entries = append(channel.Entries, catalog.Entry{Name: name})
			}
			return &catalog.Package{Name: q.pkg, Catalog: community, Channels: []catalog.Channel{channel}}, nil
		}
	}
	synctest.Test(t, func(t *testing.T) {
		c, s := start(t, having("etcd.v1"))
		c.Version("etcd", "etcd.v1", community)
		pass(time.Hour)
		for range 3 {
			c.Version("etcd", "etcd.v2", community)
		}
		pass(7 * time.Second)
		if requests, changed := s.seen(); len(requests) != 4 || len(changed) != 1 {
			t.Errorf("requests %v, changes %v; want four requests, with growing pauses, and one change", requests,
				changed)
		}
		s.say(having("etcd.v2", "etcd.v1"))
		pass(time.Minute)
		if p := c.Version("etcd", "etcd.v2", community); !p.Has("etcd.v2") {
			t.Errorf("got %v", p)
		}
		s.seen()
		pass(time.Hour)
		if requests, _ := s.seen(); len(requests) > 0 {
			t.Errorf("requests although nothing is missing: %v", requests)
		}
		c.Version("etcd", "etcd.v3", community)
		pass(24 * time.Hour)
		if requests, _ := s.seen(); len(requests) > 15 {
			t.Errorf("%d requests for a version that is not wanted any more", len(requests))
		}
	})
}
