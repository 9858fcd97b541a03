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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
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
	// spacing is the minimum time between two fetches of one package, however often its catalog changes.
	spacing = time.Second
	// absences is the number of failures in a row after which retries for a package that is missing from its catalog
	// end: a package server that has just started knows no packages.
	absences = 7
	// maxEntries bounds the memory; beyond it the package that was requested least recently is dropped.
	maxEntries = 1000
	// maxLacking bounds the versions that a package is fetched again for.
	maxLacking = 100
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
	// cache. Default: none.
	Changed func(pkg string)
	// Log logs packages that become unavailable, and available again, at V(0). Default: none.
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
	// asked, fetched and changed are when it was last asked for, when it was fetched, and when its catalog changed.
	asked, fetched, changed time.Time
	// lacking are versions that the content does not have, although a plan does: the package server lags behind its
	// catalog.
	lacking map[string]bool
	// stale is set while it is not retried, since it is not wanted.
	stale   bool
	problem string // the last one that was logged
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
		supply.MakeRoom(c.entries, maxEntries, c.queue, func(e *entry) time.Time { return e.asked })
		e = &entry{stale: true}
		c.entries[q] = e
	}
	e.asked = c.Now()
	if e.stale {
		e.stale = false
		c.queue.Add(q)
	}
	if csv == "" || e.content == nil || e.lacking[csv] || len(e.lacking) == maxLacking || e.content.Has(csv) {
		return e.content
	}
	if e.lacking == nil {
		e.lacking = map[string]bool{}
	}
	e.lacking[csv] = true
	c.queue.AddRateLimited(q)
	return e.content
}

// CatalogChanged fetches the known packages of a catalog, and the wanted ones that it may have now, at once and again
// after refetchDelay.
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
		c.queue.Add(q)
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
	if c.update(q, content, err) && c.Changed != nil {
		c.Changed(q.pkg)
	}
}

// begin reports whether to fetch a query now. What is retried ends once it is not wanted any more, and what was fetched a
// moment ago is queued for later.
func (c *Cache) begin(q query) bool {
	now := c.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[q]
	if e == nil {
		return false // dropped in the meantime
	}
	if c.queue.NumRequeues(q) > 0 && !e.wanted(now) {
		if e.stale = true; e.content == nil {
			delete(c.entries, q)
		}
		c.queue.Forget(q)
		return false
	}
	if pause := e.fetched.Add(spacing).Sub(now); pause > 0 {
		c.queue.AddAfter(q, pause)
		return false
	}
	return true
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
	e.fetched = now
	c.logProblem(q, e, err)
	if err != nil {
		c.queue.AddRateLimited(q)
		if c.queue.NumRequeues(q) < absences || e.content == nil || !errors.Is(err, errAbsent) {
			return false
		}
		e.content = nil
		return true
	}
	for csv := range e.lacking {
		if content.Has(csv) {
			delete(e.lacking, csv)
		}
	}
	if len(e.lacking) > 0 {
		c.queue.AddRateLimited(q)
	} else {
		c.queue.Forget(q)
	}
	// The queue holds one time for each query, the earliest, so that this is repeated after every fetch.
	if left := e.changed.Add(refetchDelay).Sub(now); left > 0 {
		c.queue.AddAfter(q, left)
	}
	if reflect.DeepEqual(e.content, content) {
		return false
	}
	e.content = content
	return true
}

// logProblem logs changes only: a package server may be unavailable for hours.
func (c *Cache) logProblem(q query, e *entry, err error) {
	var problem string
	if err != nil {
		problem = err.Error()
	}
	if problem == e.problem {
		return
	}
	e.problem = problem
	log := c.Log.WithValues("package", q.pkg, "catalog", catalogText(q.catalog))
	if err == nil {
		log.Info("package is known again")
	} else {
		log.Info("package is not known, it is asked for again while it is needed", "error", problem)
	}
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
// everywhere.
func Fetch(ctx context.Context, from dynamic.Interface, pkg string, source olm.Catalog) (*catalog.Package, error) {
	q := query{pkg, source}
	client := from.Resource(olm.PackageManifests).Namespace(cmp.Or(q.catalog.Namespace, metav1.NamespaceDefault))
	got, err := client.Get(ctx, q.pkg, metav1.GetOptions{})
	if err != nil {
		return nil, explain(q, err)
	}
	if p := catalog.Decode(got.Object); p != nil && p.Name == q.pkg && matches(q.catalog, p.Catalog) {
		return p, nil
	}
	if len(validation.IsValidLabelValue(q.catalog.Name)) > 0 { // no catalog has that name
		return nil, fmt.Errorf("%w in catalog %s", errAbsent, catalogText(q.catalog))
	}
	// A package in several catalogs is several objects of one name, and GET returns any of them.
	selector := labels.Set{}
	if q.catalog.Name != "" {
		selector["catalog"] = q.catalog.Name
	}
	if q.catalog.Namespace != "" {
		selector["catalog-namespace"] = q.catalog.Namespace
	}
	list, err := client.List(ctx, metav1.ListOptions{
		LabelSelector: labels.SelectorFromSet(selector).String(),
		FieldSelector: fields.OneTermEqualSelector("metadata.name", q.pkg).String(),
	})
	if err != nil {
		return nil, explain(q, err)
	}
	for i := range list.Items {
		if p := catalog.Decode(list.Items[i].Object); p != nil && p.Name == q.pkg && matches(q.catalog, p.Catalog) {
			return p, nil
		}
	}
	return nil, fmt.Errorf("%w in catalog %s", errAbsent, catalogText(q.catalog))
}

// explain distinguishes a missing package from a missing API: only the former error names the package.
func explain(q query, err error) error {
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("read PackageManifest: %w", err)
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Name == q.pkg {
		return fmt.Errorf("%w in catalog %s", errAbsent, catalogText(q.catalog))
	}
	return fmt.Errorf("PackageManifests are not served: %w", err)
}
