package certs

import (
	"crypto/rand"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// tokenLifetime is how long the API server calls by the same token. When a call fails on its way, the API server shows the whole
	// URL to whoever made the write: this bounds what a user who has seen one can do.
	tokenLifetime = time.Hour
	// tokenOverlap is how long a token is accepted after it was replaced: the time for every API server to see the next one.
	tokenOverlap = time.Minute
)

// tokenPattern is what newToken makes. What another client wrote into a path is no secret, and is replaced.
var tokenPattern = regexp.MustCompile(`^[a-z2-7]{26}$`)

// newToken makes a token of 128 bits and more, of characters that the API server accepts in a path.
func newToken() string { return strings.ToLower(rand.Text()) }

// Callers knows the API server by the path that it calls: the last segment is a token, which stands in the webhook configurations
// and nowhere else. Any replica may replace it; all follow the configurations, so all accept what is written there.
type Callers struct {
	// Now is the clock. Required.
	Now func() time.Time

	tokens atomic.Pointer[map[string]time.Time] // until when each is accepted; zero while it is in use

	mu sync.Mutex
	// since is when this replica first saw the token of a webhook configuration, by label.
	since map[string]sighting
}

type sighting struct {
	token string
	at    time.Time
}

// Knows reports whether a token is one that only the API server can call by. It is safe for concurrent use.
func (c *Callers) Knows(token string) bool {
	tokens := c.tokens.Load()
	if tokens == nil || token == "" {
		return false
	}
	until, known := (*tokens)[token]
	return known && (until.IsZero() || c.Now().Before(until))
}

// expect accepts a token that is about to be written, so that the first call by it is known.
func (c *Callers) expect(token string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	tokens := c.kept()
	tokens[token] = c.Now().Add(tokenOverlap)
	c.tokens.Store(&tokens)
}

// kept returns a copy of the tokens that are accepted. The caller holds the lock.
func (c *Callers) kept() map[string]time.Time {
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

// learn accepts the tokens that stand in the webhook configurations, by label; "" for one that has none, or several.
func (c *Callers) learn(inUse map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	tokens, now := c.kept(), c.Now()
	for token, until := range tokens {
		if until.IsZero() {
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
}

// expired reports whether a token of a webhook configuration has been in use for its lifetime, as far as this replica has seen.
func (c *Callers) expired(label, token string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := c.since[label]
	return seen.token == token && c.Now().Sub(seen.at) >= tokenLifetime
}

// endpoint is where a webhook configuration makes the API server call, and where it should.
type endpoint struct {
	// pointer is a JSON pointer to what says so: the path of a Service, or a URL.
	pointer string
	// base is the part of the URL before the path; empty for a Service.
	base string
	// path is what is there, plain is what should be there before the token.
	path, plain string
}

// readEndpoint reads the clientConfig of an entry. The path follows from the kind of configuration and the first resource:
// manifests leave it out, since a field that they set would belong to whoever applies them.
func readEndpoint(entry map[string]any, verb, pointer string) (endpoint, bool) {
	resource := firstResource(entry)
	config, _ := entry["clientConfig"].(map[string]any)
	if resource == "" || config == nil {
		return endpoint{}, false
	}
	e := endpoint{plain: "/" + verb + "/" + strings.ReplaceAll(resource, "/", "-")}
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

func firstResource(entry map[string]any) string {
	rules, _ := entry["rules"].([]any)
	if len(rules) == 0 {
		return ""
	}
	rule, _ := rules[0].(map[string]any)
	resources, _ := rule["resources"].([]any)
	if len(resources) == 0 {
		return ""
	}
	resource, _ := resources[0].(string)
	return resource
}

// token returns the token that the API server calls by, "" if there is none.
func (e endpoint) token() string {
	rest, found := strings.CutPrefix(e.path, e.plain+"/")
	if !found || !tokenPattern.MatchString(rest) {
		return ""
	}
	return rest
}

// at returns what pointer has to hold for a token, or for none.
func (e endpoint) at(token string) string {
	if token == "" {
		return e.base + e.plain
	}
	return e.base + e.plain + "/" + token
}
