// Package packages caches the packages of catalogs.
//
// The source is PackageManifest of packages.operators.coreos.com/v1: an aggregated API that cannot be watched, that
// lags behind the catalogs, and that may be absent, slow, or answer 503. Readers therefore never wait for it: the cache
// answers from memory, fetches in the background, and notifies of changes. A known package is fetched again only when
// its catalog changes; a failed fetch is retried with exponential backoff, and only while readers keep asking. At rest
// no request is sent.
package packages

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/workqueue"

	"github.com/opgate/opgate/catalog"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/snapshot/supply"
)

const (
	firstRetry = time.Second
	lastRetry  = 5 * time.Minute
	// wantedFor is how long one Get keeps a package wanted. It is longer than the longest backoff of readers that retry
	// while the package is not known.
	wantedFor = 15 * time.Minute
	// settling is the delay after which the packages of a changed catalog are fetched: one that changes all the time
	// costs a fetch in that time.
	settling = time.Second
	// absences is the number of failures in a row after which retries for a package that is missing from its catalog
	// end: a package server that has just started knows no packages.
	absences = 7
	// maxEntries bounds the memory; beyond it a package is dropped for each that is asked for.
	maxEntries = 1000
	// refetchDelay is the delay after which the packages of a changed catalog are fetched a second time, since the
	// package server lags behind.
	refetchDelay = 30 * time.Second
	// timeout bounds one request.
	timeout = 30 * time.Second
	// maxFetches is the number of concurrent requests, so that a slow one does not delay the others.
	maxFetches = 4
)

// Options configure a Cache.
type Options struct {
	// Client reads PackageManifests. Required.
	Client dynamic.Interface
	// Changed is called with each package whose content differs from before. It must not block, and may call the
	// cache. Required.
	Changed func(pkg string)
	// Log logs failed fetches at V(0). Default: none.
	Log logr.Logger
	// Now is the clock. Required.
	Now func() time.Time
}

// Cache answers from memory and fetches in the background. It is safe for concurrent use; nothing is fetched before
// Start.
type Cache struct {
	Options
	fetch func(ctx context.Context, q query) (*catalog.Package, error)
	queue workqueue.TypedRateLimitingInterface[query]

	mu      sync.Mutex
	entries map[query]*entry
}

// query is a package, and the parts of a catalog that are given.
type query struct {
	pkg     string
	catalog olm.Catalog
}

// entry is the state of a query.
type entry struct {
	content *catalog.Package
	// asked and changed are when it was last asked for, and when its catalog changed.
	asked, changed time.Time
	// lacking is set if the content does not have a version that a plan has: the package server lags behind its catalog.
	lacking bool
	// stale is set while it is not retried, since it is not wanted.
	stale bool
}

// New returns a cache. Start runs it.
func New(o Options) *Cache {
	return &Cache{Options: o, entries: map[query]*entry{}, queue: supply.NewQueue[query](firstRetry, lastRetry),
		fetch: func(ctx context.Context, q query) (*catalog.Package, error) {
			return Fetch(ctx, o.Client, q.pkg, q.catalog)
		}}
}

// Get returns a package of a catalog; a zero source, or one with an empty part, is any catalog that has the package. It
// never sends a request: the result is nil while the package is not known, and then it is being fetched. The result is
// shared and must not be modified.
func (c *Cache) Get(pkg string, source olm.Catalog) *catalog.Package {
	return c.Version(pkg, "", source)
}

// Version is Get for a reader that needs a version of a package. If the known content does not have it, it is fetched
// again, with exponential backoff while the version is wanted.
func (c *Cache) Version(pkg, csv string, source olm.Catalog) *catalog.Package {
	if pkg == "" || max(len(pkg), len(csv)) > catalog.MaxName {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	q := query{pkg, source}
	e := c.entries[q]
	if e == nil {
		if c.queue.Len() >= maxEntries {
			return nil // dropping an entry does not take its query off the queue
		}
		supply.MakeRoom(c.entries, maxEntries)
		e = &entry{stale: true}
		c.entries[q] = e
	}
	e.asked = c.Now()
	if e.stale {
		e.stale = false
		c.queue.Add(q)
	}
	if csv != "" && e.content != nil && !e.lacking && !e.content.Has(csv) {
		e.lacking = true
		c.queue.AddRateLimited(q)
	}
	return e.content
}

// CatalogChanged fetches the known packages of a catalog, and the wanted ones that it may have now, after settling and
// again after refetchDelay.
func (c *Cache) CatalogChanged(source olm.Catalog) {
	now := c.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for q, e := range c.entries {
		if !matches(q.catalog, source) || !e.wanted(now) && e.content == nil {
			continue
		}
		e.changed, e.stale = now, false
		c.queue.Forget(q)
		c.queue.AddAfter(q, settling)
	}
}

// Start fetches until the context ends.
func (c *Cache) Start(ctx context.Context) error {
	supply.Run(ctx, c.queue, maxFetches, func(q query) { c.process(ctx, q) })
	return nil
}

// process runs a query.
func (c *Cache) process(ctx context.Context, q query) {
	if !c.begin(q) {
		return
	}
	requestContext, cancel := context.WithTimeout(ctx, timeout)
	content, err := c.fetch(requestContext, q)
	cancel()
	if c.update(q, content, err) {
		c.Changed(q.pkg)
	}
}

// begin reports whether to fetch a query. What is retried ends once it is not wanted any more.
func (c *Cache) begin(q query) bool {
	now := c.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[q]
	if e != nil && (c.queue.NumRequeues(q) == 0 || e.wanted(now)) {
		return true
	}
	c.queue.Forget(q)
	if e != nil && e.content != nil {
		e.stale = true
	} else {
		delete(c.entries, q)
	}
	return false
}

// update stores the result of a fetch and reports whether the content changed. On an error the last good content is
// retained, and the fetch is retried.
func (c *Cache) update(q query, content *catalog.Package, err error) (changed bool) {
	now := c.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[q]
	if e == nil {
		return false // dropped in the meantime
	}
	if err != nil {
		c.Log.Info("package is not known, it is asked for again while it is needed", "package", q.pkg,
			"catalog", catalogText(q.catalog), "error", err.Error())
		c.queue.AddRateLimited(q)
		if c.queue.NumRequeues(q) < absences || e.content == nil || !errors.Is(err, errAbsent) {
			return false
		}
		e.content = nil
		return true
	}
	changed = !reflect.DeepEqual(e.content, content)
	e.content, e.lacking = content, e.lacking && !changed
	if e.lacking {
		c.queue.AddRateLimited(q)
	} else {
		c.queue.Forget(q)
	}
	// The queue holds one time for each query, the earliest, so that this is repeated after every fetch.
	if left := e.changed.Add(refetchDelay).Sub(now); left > 0 {
		c.queue.AddAfter(q, left)
	}
	return changed
}

func (e *entry) wanted(now time.Time) bool { return now.Sub(e.asked) < wantedFor }

// matches reports whether a catalog matches a query, which may have empty parts.
func matches(asked, source olm.Catalog) bool {
	return (asked.Name == "" || asked.Name == source.Name) &&
		(asked.Namespace == "" || asked.Namespace == source.Namespace)
}

func catalogText(c olm.Catalog) string {
	if c == (olm.Catalog{}) {
		return "any"
	}
	return cmp.Or(c.Namespace, "*") + "/" + cmp.Or(c.Name, "*")
}

// errAbsent is the error for a package that does not exist, although the API is served.
var errAbsent = errors.New("no such package")

// Fetch reads a package of a catalog; the parts of the catalog that are not known are empty. It reads in the namespace of
// the catalog: a catalog outside of OLM's global namespace serves its packages only there, and the global ones are served
// everywhere. A package in several catalogs is several objects of one name, of which GET would return any.
func Fetch(ctx context.Context, from dynamic.Interface, pkg string, source olm.Catalog) (*catalog.Package, error) {
	client := from.Resource(olm.PackageManifests).Namespace(cmp.Or(source.Namespace, metav1.NamespaceDefault))
	list, err := client.List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, pkg).String()})
	if err != nil {
		return nil, fmt.Errorf("read PackageManifest: %w", err)
	}
	for i := range list.Items {
		if p := catalog.Decode(list.Items[i].Object); p != nil && p.Name == pkg && matches(source, p.Catalog) {
			return p, nil
		}
	}
	return nil, fmt.Errorf("%w in catalog %s", errAbsent, catalogText(source))
}
