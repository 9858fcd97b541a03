package certs

import (
	"crypto/rand"
	"maps"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

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
	seen := c.since[label]
	return seen.token == token && c.Now().Sub(seen.at) >= c.lifetime(token)
}

func (c *Callers) lifetime(token string) time.Duration {
	if c.exposed[token] {
		return exposedLifetime
	}
	return tokenLifetime
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
	// pointer is the JSON pointer to it: the path of a Service, or a URL.
	pointer string
	// base is the part of the URL before the path; empty for a Service.
	base string
	// path is the current path, expected the right one without a token.
	path, expected string
}

// readEndpoint reads the clientConfig of an entry. The path follows from the kind of configuration and the name of the
// entry, so that those with failurePolicy Ignore have paths of their own: manifests leave it out, since the field
// manager that applies them would own a field that they set.
func readEndpoint(entry map[string]any, verb, pointer string) (endpoint, bool) {
	config, _ := entry["clientConfig"].(map[string]any)
	name, _ := entry["name"].(string)
	name, ours := strings.CutSuffix(name, entrySuffix)
	if !ours || config == nil {
		return endpoint{}, false
	}
	e := endpoint{expected: "/" + verb + "/" + name}
	if service, ok := config["service"].(map[string]any); ok {
		e.path, _ = service["path"].(string)
		e.pointer = pointer + "/service/path"
		return e, true
	}
	text, _ := config["url"].(string)
	target, err := url.Parse(text)
	if err != nil || target.Host == "" {
		return endpoint{}, false
	}
	e.base, e.path, e.pointer = target.Scheme+"://"+target.Host, target.Path, pointer+"/url"
	return e, true
}

// token returns the token at the end of the path, "" if there is none.
func (e endpoint) token() string {
	rest, found := strings.CutPrefix(e.path, e.expected+"/")
	if !found || !tokenPattern.MatchString(rest) {
		return ""
	}
	return rest
}

// at returns the value of the field for a token, "" for none.
func (e endpoint) at(token string) string {
	if token == "" {
		return e.base + e.expected
	}
	return e.base + e.expected + "/" + token
}
