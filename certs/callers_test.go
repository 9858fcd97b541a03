package certs

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/opgate/opgate/internal/watched"
)

// TestA9Tokens follows tokens through their life: what was written is accepted at once, what was replaced for a minute
// more, and a token that can be guessed never.
func TestA9Tokens(t *testing.T) {
	now := start
	c := &Callers{Now: func() time.Time { return now }}
	first, second := newToken(), newToken()
	if problems := validation.IsDNS1123Subdomain(first); len(problems) > 0 || !tokenPattern.MatchString(first) ||
		first == second {
		t.Fatalf("the API server refuses %q in a path (%v), or it is not random", first, problems)
	}
	wantKnown := func(when string, token string, want bool) {
		t.Helper()
		if c.Knows(token) != want {
			t.Errorf("%s: known is %t", when, !want)
		}
	}
	wantKnown("before anything was read", first, false)
	wantKnown("no token", "", false)
	c.expect(first)
	wantKnown("about to be written", first, true)
	now = now.Add(tokenOverlap)
	wantKnown("never written", first, false)

	const object = "validatingwebhookconfiguration"
	c.update(map[string]string{object: first})
	wantKnown("in use", first, true)
	now = now.Add(tokenLifetime - time.Second)
	wantKnown("still in use", first, true)
	if c.expired(object, first) {
		t.Error("it expires early")
	}
	now = now.Add(time.Second)
	if !c.expired(object, first) || c.expired("mutatingwebhookconfiguration", first) {
		t.Error("it does not expire, or another one does")
	}
	c.update(map[string]string{object: second})
	wantKnown("just replaced", first, true)
	wantKnown("the next one", second, true)
	if c.expired(object, second) {
		t.Error("the next one has expired")
	}
	now = now.Add(tokenOverlap)
	wantKnown("replaced a while ago", first, false)
	wantKnown("the next one", second, true)
	c.update(map[string]string{object: ""})
	wantKnown("the configuration was just deleted", second, true)
	now = now.Add(tokenOverlap)
	wantKnown("the configuration is gone", second, false)
}

// TestA9Endpoints reads the paths and URLs of webhook configurations, as they are and as they should be.
func TestA9Endpoints(t *testing.T) {
	token := newToken()
	for _, tc := range []struct {
		name, config, entry, verb string
		token                     string
		want                      string
	}{
		{name: "no path", config: `{"service":{"name":"opgate-webhook"}}`, entry: "subscriptions", verb: "mutate",
			want: "/mutate/subscriptions/"},
		{name: "a path with a token", config: `{"service":{"path":"/validate/installplans-status/TOKEN"}}`,
			entry: "installplans-status", verb: "validate", token: token,
			want: "/validate/installplans-status/"},
		{name: "attack: a token that can be guessed", config: `{"service":{"path":"/validate/installplans/known"}}`,
			entry: "installplans", verb: "validate",
			want: "/validate/installplans/"},
		{name: "attack: another endpoint", config: `{"service":{"path":"/validate/subscriptions/TOKEN"}}`,
			entry: "installplans", verb: "validate",
			want: "/validate/installplans/"},
		{name: "a step, which has a path of its own",
			config: `{"service":{"path":"/validate/clusterserviceversions/TOKEN"}}`,
			entry:  "steps-clusterserviceversions", verb: "validate",
			want: "/validate/steps-clusterserviceversions/"},
		{name: "a URL without a path", config: `{"url":"https://127.0.0.1:9443"}`, entry: "constraints",
			verb: "validate",
			want: "https://127.0.0.1:9443/validate/constraints/"},
		{name: "a URL with a token", config: `{"url":"https://127.0.0.1:9443/validate/constraints/TOKEN"}`,
			entry: "constraints", verb: "validate", token: token,
			want: "https://127.0.0.1:9443/validate/constraints/"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := &registration{verb: tc.verb, Object: stored(t, `{"webhooks":[{"name":"`+tc.entry+
				`.opgate.io","clientConfig":`+strings.ReplaceAll(tc.config, "TOKEN", token)+`}]}`)}
			endpoints := r.endpoints(r.Get())
			if len(endpoints) != 1 {
				t.Fatalf("endpoints are %v", endpoints)
			}
			e := endpoints[0]
			had := r.token()
			e.route("")
			bare := e.fields[e.key]
			if e.route(token); had != tc.token || e.fields[e.key] != tc.want+token ||
				bare != strings.TrimSuffix(tc.want, "/") {
				t.Errorf("got %+v with token %q, which becomes %v and %v, want %+v", e, had, bare, e.fields[e.key], tc)
			}
		})
	}
	mixed := &registration{verb: "validate", Object: stored(t, `{"webhooks":[
		{"name":"policies.opgate.io","clientConfig":{"service":{"path":"/validate/policies/`+token+`"}}},
		{"name":"policysets.opgate.io","clientConfig":{"service":{"path":"/validate/policysets"}}}]}`)}
	if got := mixed.token(); got != "" {
		t.Errorf("a configuration of which one path was reset has token %q", got)
	}
}

// stored returns an object as it is read from the API server.
func stored(t *testing.T, text string) *watched.Object {
	t.Helper()
	k := NewController(Options{Client: dynamic.NewForConfigOrDie(&rest.Config{Host: "127.0.0.1:1"}),
		Metrics: NewMetrics(prometheus.NewRegistry()), Now: time.Now}, inMemory{})
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(
		[]byte(`{"kind":"ValidatingWebhookConfiguration","apiVersion":"admissionregistration.k8s.io/v1","metadata":{"name":"opgate"},` + text[1:])); err != nil {
		t.Fatal(err)
	}
	o := k.registrations[0].Object
	if err := o.Informer.GetStore().Add(u); err != nil {
		t.Fatal(err)
	}
	return o
}

// TestP4tTokenOfAFailedCall follows a token that may have been shown to a user: it is replaced once it was in use for
// ten seconds, however often users cause that, and accepted for two seconds more (threat O44).
func TestP4tTokenOfAFailedCall(t *testing.T) {
	const object = "validatingwebhookconfiguration"
	now := start
	c := &Callers{Now: func() time.Time { return now }}
	first, second, unknown := newToken(), newToken(), newToken()
	c.update(map[string]string{object: first})
	c.Expose(unknown)
	c.Expose("")
	if _, found := c.exposedInUse(); found {
		t.Error("a token is exposed that is not accepted")
	}
	c.Expose(first)
	if due, found := c.exposedInUse(); !found || due != start.Add(exposedLifetime) {
		t.Errorf("the exposed token is in use: %t, and expires at %s", found, due)
	}
	if c.expired(object, first) {
		t.Error("it expires at once, so that users can have tokens replaced without end")
	}
	now = now.Add(exposedLifetime)
	if !c.expired(object, first) {
		t.Error("it does not expire")
	}
	c.update(map[string]string{object: second})
	if _, found := c.exposedInUse(); found || c.expired(object, second) {
		t.Error("the next token counts as exposed")
	}
	if !c.Knows(first) {
		t.Error("it is not accepted any more, though API servers may not have observed the next one")
	}
	now = now.Add(exposedOverlap)
	if c.Knows(first) || !c.Knows(second) {
		t.Error("it is still accepted, or the next one is not")
	}
	c.update(map[string]string{object: second})
	if len(c.exposed) > 0 {
		t.Errorf("%d tokens are remembered that are not accepted", len(c.exposed))
	}
}

// TestP4tTokenIsReplaced has the API server's client of a replica write the next token, whether it leads or not.
func TestP4tTokenIsReplaced(t *testing.T) {
	token := newToken()
	written := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var patch admissionregistrationv1.ValidatingWebhookConfiguration
		if err := json.NewDecoder(r.Body).Decode(&patch); err != nil || r.Method != http.MethodPatch ||
			len(patch.Webhooks) != 1 || patch.ResourceVersion != "1" {
			t.Errorf("%s of %v: %v", r.Method, patch, err)
		} else {
			written <- *patch.Webhooks[0].ClientConfig.Service.Path
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"ValidatingWebhookConfiguration","apiVersion":"admissionregistration.k8s.io/v1","metadata":{"name":"opgate"}}`))
	}))
	defer server.Close()
	now := start
	callers := &Callers{Now: func() time.Time { return now }}
	k := NewController(Options{Client: dynamic.NewForConfigOrDie(&rest.Config{Host: server.URL}),
		Metrics: NewMetrics(prometheus.NewRegistry()), Now: callers.Now, Callers: callers}, inMemory{})
	k.registrations = k.registrations[1:2]
	r := k.registrations[0]
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON([]byte(`{"kind":"ValidatingWebhookConfiguration","apiVersion":"admissionregistration.k8s.io/v1","metadata":{"name":"opgate","resourceVersion":"1"},
		"webhooks":[{"name":"policies.opgate.io","clientConfig":{"service":{"path":"/validate/policies/` + token + `"}}}]}`)); err != nil {
		t.Fatal(err)
	}
	if err := r.Informer.GetStore().Add(u); err != nil {
		t.Fatal(err)
	}
	callers.update(map[string]string{r.label: token})
	now = now.Add(exposedLifetime)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { k.keepPaths(ctx) })
	callers.Expose(token)
	path := <-written
	next, found := strings.CutPrefix(path, "/validate/policies/")
	if !found || next == token || !callers.Knows(next) {
		t.Errorf("the path that is written is %s", path)
	}
	cancel()
	running.Wait()
}
