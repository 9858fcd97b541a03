// Package catalog remembers what catalogs say of packages.
//
// The source is PackageManifest of packages.operators.coreos.com/v1: an aggregated API that cannot be watched,
// that lags behind the catalogs, and that may be absent, slow, or answer 503. So nobody waits for it: the cache
// answers from memory, fetches in the background, and says when something changed. What is known is fetched
// again only when its catalog changed; what could not be fetched is tried again ever more slowly, and only
// while somebody keeps asking. At rest no request is sent.
package catalog

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/dynamic"

	"github.com/opgate/opgate/controller/operatorpolicy/compliance"
	"github.com/opgate/opgate/olm"
)

const (
	firstRetry = time.Second
	lastRetry  = 5 * time.Minute
	// wantedFor is how long one question keeps a package wanted. It is longer than the longest pause of those
	// who ask again while they get no answer.
	wantedFor = 15 * time.Minute
	// spacing is the least time between two fetches of one package, however often its catalog changes.
	spacing = time.Second
	// absences is how often in a row a package must be missing from its catalog before what was known of it
	// is given up: a package server that has just started knows nothing for a while.
	absences = 7
	// maxEntries bounds the memory; beyond it the package that nobody asked for longest is dropped.
	maxEntries = 1000
	// maxFetches is how many requests are under way at once, so that slow ones do not hold up the others.
	maxFetches = 4
)

// Options configure a Cache.
type Options struct {
	// Client reads PackageManifests. Required.
	Client dynamic.Interface
	// Changed is told of each package whose content differs from before. It must return at once, and may
	// call the cache. Default: nobody is told.
	Changed func(pkg string)
	// Settle is when, after a catalog changed, its packages are fetched a second time, since the package
	// server lags behind. Default: 30 s.
	Settle time.Duration
	// Timeout bounds one request. Default: 30 s.
	Timeout time.Duration
	// Log takes what became unavailable, and available again, at V(0). Default: none.
	Log logr.Logger
	// Now is the clock. Required.
	Now func() time.Time
}

// Cache answers from memory and fetches in the background. All its methods may be called at any time, from
// any goroutine; nothing is fetched before Start.
type Cache struct {
	Options
	fetch fetcher
	// wake holds one token: there may be something to fetch.
	wake chan struct{}

	mu      sync.Mutex
	entries map[question]*entry
	running int
}

// question is what is asked: a package, and as much of a catalog as is given.
type question struct {
	pkg     string
	catalog olm.Catalog
}

// entry is what is known of a question.
type entry struct {
	content *compliance.Package
	asked   time.Time
	// due is when to fetch, settle when to fetch once more; zero where there is no need.
	due, settle time.Time
	fetched     time.Time
	fetching    bool
	failures    int
	problem     string // the last one that was logged
}

// New makes a cache. Start runs it.
func New(o Options) *Cache {
	o.Settle = cmp.Or(o.Settle, 30*time.Second)
	o.Timeout = cmp.Or(o.Timeout, 30*time.Second)
	if o.Log.GetSink() == nil {
		o.Log = logr.Discard()
	}
	return &Cache{Options: o, fetch: manifests{o.Client}.fetch, wake: make(chan struct{}, 1), entries: map[question]*entry{}}
}

// Get answers what a catalog says of a package; a zero catalog, or one with a part left open, stands for any
// that has it. It never calls out: the answer is nil while it is not known, and then it is being fetched. The
// answer is shared and must not be changed.
func (c *Cache) Get(pkg string, catalog olm.Catalog) *compliance.Package {
	if pkg == "" || len(pkg) > maxName {
		return nil
	}
	now := c.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	q := question{pkg, catalog}
	e := c.entries[q]
	if e == nil {
		c.makeRoom()
		e = &entry{due: now}
		c.entries[q] = e
		c.poke()
	}
	e.asked = now
	if e.due.IsZero() && e.failures > 0 && !e.fetching { // given up since nobody had asked for long
		e.due, e.failures = now, 0
		c.poke()
	}
	return e.content
}

// CatalogChanged fetches what is known from a catalog, and what may now be found in it, at once and again
// after Settle.
func (c *Cache) CatalogChanged(catalog olm.Catalog) {
	now := c.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for q, e := range c.entries {
		if !matches(q.catalog, catalog) {
			continue
		}
		if !wanted(e, now) && e.content == nil {
			continue
		}
		e.due, e.settle, e.failures = now, now.Add(c.Settle), 0
	}
	c.poke()
}

// Forget drops what is known of a package and ends its retries.
func (c *Cache) Forget(pkg string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for q := range c.entries {
		if q.pkg == pkg {
			delete(c.entries, q)
		}
	}
}

// NeedLeaderElection is false: every replica completes policies, and a replica that nobody asks fetches nothing.
func (c *Cache) NeedLeaderElection() bool { return false }

// Start fetches until the context ends.
func (c *Cache) Start(ctx context.Context) error {
	var fetches sync.WaitGroup
	defer fetches.Wait()
	for {
		questions, pause := c.next()
		for _, q := range questions {
			fetches.Go(func() { c.answer(ctx, q) })
		}
		timer := time.NewTimer(pause)
		if pause == 0 {
			timer.Stop() // nothing happens until somebody asks
		}
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-c.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// next takes what is to be fetched now, and tells how long to wait for more; zero is for good.
func (c *Cache) next() (questions []question, pause time.Duration) {
	now := c.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	type pending struct {
		question
		due time.Time
	}
	var due []pending
	for q, e := range c.entries {
		if e.fetching {
			continue
		}
		if e.failures > 0 && !wanted(e, now) {
			e.due = time.Time{}
			if e.content == nil {
				delete(c.entries, q)
				continue
			}
		}
		at := earlier(e.due, e.settle)
		if at.IsZero() {
			continue
		}
		if free := e.fetched.Add(spacing); at.Before(free) {
			at = free
		}
		due = append(due, pending{q, at})
	}
	slices.SortFunc(due, func(a, b pending) int {
		return cmp.Or(a.due.Compare(b.due), cmp.Compare(a.pkg, b.pkg))
	})
	for _, p := range due {
		if wait := p.due.Sub(now); wait > 0 {
			return questions, wait
		}
		if c.running == maxFetches {
			return questions, 0 // the end of a fetch wakes the loop
		}
		e := c.entries[p.question]
		e.due, e.fetching = time.Time{}, true
		if !e.settle.After(now) {
			e.settle = time.Time{}
		}
		c.running++
		questions = append(questions, p.question)
	}
	return questions, 0
}

// answer fetches one package and keeps what came of it.
func (c *Cache) answer(ctx context.Context, q question) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	content, err := c.fetch(ctx, q)
	cancel()
	if c.keep(q, content, err) && c.Changed != nil {
		c.Changed(q.pkg)
	}
}

// keep stores an answer and tells whether it differs from what was known. Where there is none the last good
// one stays, and the question is asked again later.
func (c *Cache) keep(q question, content *compliance.Package, err error) (changed bool) {
	now := c.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running--
	defer c.poke()
	e := c.entries[q]
	if e == nil {
		return false // forgotten meanwhile
	}
	e.fetching, e.fetched = false, now
	c.note(q, e, err)
	if err != nil {
		if e.due.IsZero() { // else the catalog changed meanwhile, and the next fetch is soon
			e.due = now.Add(retryAfter(e.failures))
		}
		e.failures++
		if e.failures < absences || e.content == nil || !isAbsent(err) {
			return false
		}
		e.content = nil
		return true
	}
	e.failures = 0
	if reflect.DeepEqual(e.content, content) {
		return false
	}
	e.content = content
	return true
}

// note logs changes only: a package server may be away for hours.
func (c *Cache) note(q question, e *entry, err error) {
	var problem string
	if err != nil {
		problem = err.Error()
	}
	switch problem {
	case e.problem:
	case "":
		c.Log.Info("package is known again", "package", q.pkg, "catalog", catalogText(q.catalog))
	default:
		c.Log.Info("package is not known, it is asked for again while it is needed",
			"package", q.pkg, "catalog", catalogText(q.catalog), "error", problem)
	}
	e.problem = problem
}

// makeRoom drops the entry that nobody asked for longest.
func (c *Cache) makeRoom() {
	if len(c.entries) < maxEntries {
		return
	}
	var oldest question
	var at time.Time
	for q, e := range c.entries {
		if at.IsZero() || e.asked.Before(at) {
			oldest, at = q, e.asked
		}
	}
	delete(c.entries, oldest)
}

func (c *Cache) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func wanted(e *entry, now time.Time) bool { return now.Sub(e.asked) < wantedFor }

// retryAfter doubles from firstRetry to lastRetry.
func retryAfter(failures int) time.Duration {
	if failures > 16 {
		return lastRetry
	}
	return min(firstRetry<<failures, lastRetry)
}

// earlier gives the earlier of two times that are set.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// matches tells whether a catalog answers a question that may leave parts of it open.
func matches(asked, catalog olm.Catalog) bool {
	return (asked.Name == "" || asked.Name == catalog.Name) && (asked.Namespace == "" || asked.Namespace == catalog.Namespace)
}

func catalogText(c olm.Catalog) string {
	if c == (olm.Catalog{}) {
		return "any"
	}
	return cmp.Or(c.Namespace, "*") + "/" + cmp.Or(c.Name, "*")
}
