package certs

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/internal/signal"
)

const (
	// tokenLifetime is how long a token is in use. When a call fails, the API server shows the whole URL, with the
	// token, to the user whose write it was: the lifetime bounds what that user can do with it.
	tokenLifetime = time.Hour
	// tokenOverlap is how long a replaced token is still accepted: the time for every API server to observe the next
	// one.
	tokenOverlap = time.Minute
	// exposedLifetime is how long at least a token is in use though a call with it may have failed, since users may
	// cause that at will. exposedOverlap is tokenOverlap for it: API servers observe the next one within a
	// second, and until then their reviews are answered without details, and steps of plans refused.
	exposedLifetime = 10 * time.Second
	exposedOverlap  = 2 * time.Second
)

// tokenPattern matches the tokens that newToken returns. A token that another client wrote into a path is no secret,
// and is replaced.
var tokenPattern = regexp.MustCompile(`^[a-z2-7]{26}$`)

// newToken returns a random token of at least 128 bits, in characters that the API server accepts in a path.
func newToken() string { return strings.ToLower(rand.Text()) }

// Callers authenticates the API server by the path of its requests: the last segment is a token, which only the webhook
// configurations contain. Any replica may replace it; all replicas watch the configurations, so all accept the current
// token.
type Callers struct {
	// Now is the clock. Required.
	Now func() time.Time

	tokens atomic.Pointer[map[string]time.Time] // expiry of each accepted token; zero while it is in use

	mu sync.Mutex
	// since is when this replica first saw the token of a webhook configuration, by label.
	since map[string]sighting
	// exposed are accepted tokens that may have been shown to a user. Additions are put into added, which may be nil.
	exposed map[string]bool
	added   chan<- struct{}
}

type sighting struct {
	token string
	at    time.Time
}

// Knows reports whether a token is one that only the API server knows. It is safe for concurrent use.
func (c *Callers) Knows(token string) bool {
	tokens := c.tokens.Load()
	if tokens == nil || token == "" {
		return false
	}
	until, known := (*tokens)[token]
	return known && (until.IsZero() || c.Now().Before(until))
}

// expect accepts a token before it is written, so that the first request with it is authenticated.
func (c *Callers) expect(token string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	tokens := c.accepted()
	tokens[token] = c.Now().Add(tokenOverlap)
	c.tokens.Store(&tokens)
}

// accepted returns a copy of the accepted tokens. The caller must hold the lock.
func (c *Callers) accepted() map[string]time.Time {
	tokens := map[string]time.Time{}
	if last := c.tokens.Load(); last != nil {
		for token, until := range *last {
			if until.IsZero() || c.Now().Before(until) {
				tokens[token] = until
			}
		}
	}
	return tokens
}

// update accepts the tokens in the webhook configurations, by label; "" for a configuration without a token or with
// several.
func (c *Callers) update(inUse map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	tokens, now := c.accepted(), c.Now()
	for token, until := range tokens {
		switch {
		case !until.IsZero():
		case c.exposed[token]:
			tokens[token] = now.Add(exposedOverlap)
		default:
			tokens[token] = now.Add(tokenOverlap)
		}
	}
	if c.since == nil {
		c.since = map[string]sighting{}
	}
	for label, token := range inUse {
		if token != "" {
			tokens[token] = time.Time{}
		}
		if c.since[label].token != token {
			c.since[label] = sighting{token, now}
		}
	}
	c.tokens.Store(&tokens)
	maps.DeleteFunc(c.exposed, func(token string, _ bool) bool { _, known := tokens[token]; return !known })
}

// Expose records that a token may have been shown to a user, so that it is replaced: the call with it timed out, or
// failed otherwise.
func (c *Callers) Expose(token string) {
	if !c.Knows(token) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.exposed == nil {
		c.exposed = map[string]bool{}
	}
	c.exposed[token] = true
	signal.Put(c.added)
}

// expired reports whether this replica has observed a token of a webhook configuration for longer than its lifetime.
func (c *Callers) expired(label, token string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen, lifetime := c.since[label], tokenLifetime
	if c.exposed[token] {
		lifetime = exposedLifetime
	}
	return seen.token == token && c.Now().Sub(seen.at) >= lifetime
}

// exposedInUse returns when the first exposed token that is in use expires, false if there is none.
func (c *Callers) exposedInUse() (first time.Time, found bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, seen := range c.since {
		if end := seen.at.Add(exposedLifetime); c.exposed[seen.token] && (!found || end.Before(first)) {
			first, found = end, true
		}
	}
	return first, found
}

// entrySuffix is how the names of entries of the webhook configurations end.
const entrySuffix = ".opgate.io"

// endpoint is a path or URL in a webhook configuration, as it is and as it should be.
type endpoint struct {
	// fields has it under key: the path of a Service, or a URL.
	fields map[string]any
	key    string
	// base is the part of the URL before the path; empty for a Service.
	base string
	// path is the current path, expected the right one without a token.
	path, expected string
}

// readEndpoint reads the clientConfig of an entry. The path follows from the kind of configuration and the name of the
// entry, so that those with failurePolicy Ignore have paths of their own: manifests leave it out, since the field
// manager that applies them would own a field that they set.
func readEndpoint(entry map[string]any, verb string) (endpoint, bool) {
	config, _ := entry["clientConfig"].(map[string]any)
	name, _ := entry["name"].(string)
	name, ours := strings.CutSuffix(name, entrySuffix)
	if !ours || config == nil {
		return endpoint{}, false
	}
	expected := "/" + verb + "/" + name
	if service, ok := config["service"].(map[string]any); ok {
		path, _ := service["path"].(string)
		return endpoint{fields: service, key: "path", path: path, expected: expected}, true
	}
	text, _ := config["url"].(string)
	target, err := url.Parse(text)
	if err != nil || target.Host == "" {
		return endpoint{}, false
	}
	return endpoint{fields: config, key: "url", base: target.Scheme + "://" + target.Host, path: target.Path,
		expected: expected}, true
}

// token returns the token at the end of the path, "" if there is none.
func (e endpoint) token() string {
	rest, found := strings.CutPrefix(e.path, e.expected+"/")
	if !found || !tokenPattern.MatchString(rest) {
		return ""
	}
	return rest
}

// route sets the path with a token, with none for "".
func (e endpoint) route(token string) {
	value := e.base + e.expected
	if token != "" {
		value += "/" + token
	}
	e.fields[e.key] = value
}

// endpoints returns the paths and URLs of an object, which are parts of it.
func (r *registration) endpoints(u *unstructured.Unstructured) (all []endpoint) {
	if u == nil || r.verb == "" {
		return nil
	}
	for _, entry := range entriesOf(u) {
		if e, ok := readEndpoint(entry, r.verb); ok {
			all = append(all, e)
		}
	}
	return all
}

// token returns the token that all endpoints have in common, "" if there is none.
func (r *registration) token() string {
	var token string
	for i, e := range r.endpoints(r.Get()) {
		if i > 0 && e.token() != token {
			return ""
		}
		token = e.token()
	}
	return token
}

// routed reports whether all paths are as they should be.
func (k *Controller) routed(r *registration) bool {
	endpoints := r.endpoints(r.Get())
	if k.options.Callers == nil {
		return !slices.ContainsFunc(endpoints, func(e endpoint) bool { return e.path != e.expected && e.token() == "" })
	}
	token := r.token()
	return len(endpoints) == 0 || token != "" && !k.options.Callers.expired(r.label, token)
}

// reconcilePaths writes paths that end in a token. Where the API server authenticates by certificate, it only fills in
// the paths that manifests leave out: a token that another replica has written, as during a change of flags, is
// harmless there.
func (k *Controller) reconcilePaths(ctx context.Context) error {
	var failed []error
	for _, r := range k.registrations {
		if k.routed(r) {
			continue
		}
		var token string
		if k.options.Callers != nil {
			token = newToken()
			k.options.Callers.expect(token)
		}
		live := r.Get()
		wanted := live.DeepCopy()
		for _, e := range r.endpoints(wanted) {
			e.route(token)
		}
		written, err := k.write(ctx, r, live, wanted)
		if written {
			k.options.Log.Info("wrote paths", "kind", r.kind.Kind, "name", r.name)
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// keepPaths keeps the paths until the context is cancelled, and replaces tokens that may have been shown to users. Every
// replica does so, since only the one that was called knows; one that writes last, or first, is as good as the other.
func (k *Controller) keepPaths(ctx context.Context) {
	for ctx.Err() == nil {
		next := resyncPeriod
		if err := k.reconcilePaths(ctx); err != nil && ctx.Err() == nil {
			k.options.Log.Error(err, "paths of webhooks not written, retrying", "after", firstRetry.String())
			next = firstRetry
		}
		if k.options.Callers != nil {
			if due, found := k.options.Callers.exposedInUse(); found {
				// Not before the watch shows the token that was just written.
				next = min(next, max(due.Sub(k.options.Now()), firstRetry))
			}
		}
		select {
		case <-ctx.Done():
		case <-k.routes:
		case <-time.After(next):
		}
	}
}
