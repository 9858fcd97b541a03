package certs

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"github.com/prometheus/client_golang/prometheus"
)

// TestA9Tokens follows tokens through their life: what was written is accepted at once, what was replaced for a minute more, and
// a token that can be guessed never.
func TestA9Tokens(t *testing.T) {
	now := start
	c := &Callers{Now: func() time.Time { return now }}
	first, second := newToken(), newToken()
	if problems := validation.IsDNS1123Subdomain(first); len(problems) > 0 || !tokenPattern.MatchString(first) || first == second {
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
		name, config, resource, verb string
		token                        string
		pointer, want                string
	}{
		{name: "no path", config: `{"service":{"name":"opgate-webhook"}}`, resource: "subscriptions", verb: "mutate",
			pointer: "/webhooks/0/clientConfig/service/path", want: "/mutate/subscriptions/"},
		{name: "a path with a token", config: `{"service":{"path":"/validate/installplans-status/TOKEN"}}`, resource: "installplans/status", verb: "validate", token: token,
			pointer: "/webhooks/0/clientConfig/service/path", want: "/validate/installplans-status/"},
		{name: "attack: a token that can be guessed", config: `{"service":{"path":"/validate/installplans/known"}}`, resource: "installplans", verb: "validate",
			pointer: "/webhooks/0/clientConfig/service/path", want: "/validate/installplans/"},
		{name: "attack: another endpoint", config: `{"service":{"path":"/validate/subscriptions/TOKEN"}}`, resource: "installplans", verb: "validate",
			pointer: "/webhooks/0/clientConfig/service/path", want: "/validate/installplans/"},
		{name: "a URL without a path", config: `{"url":"https://127.0.0.1:9443"}`, resource: "constraints", verb: "validate",
			pointer: "/webhooks/0/clientConfig/url", want: "https://127.0.0.1:9443/validate/constraints/"},
		{name: "a URL with a token", config: `{"url":"https://127.0.0.1:9443/validate/constraints/TOKEN"}`, resource: "constraints", verb: "validate", token: token,
			pointer: "/webhooks/0/clientConfig/url", want: "https://127.0.0.1:9443/validate/constraints/"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := &registration{verb: tc.verb, object: stored(t, `{"webhooks":[{"rules":[{"resources":["`+tc.resource+`"]}],"clientConfig":`+strings.ReplaceAll(tc.config, "TOKEN", token)+`}]}`)}
			endpoints := r.endpoints()
			if len(endpoints) != 1 {
				t.Fatalf("endpoints are %v", endpoints)
			}
			e := endpoints[0]
			if r.token() != tc.token || e.pointer != tc.pointer || e.at(token) != tc.want+token || e.at("") != strings.TrimSuffix(tc.want, "/") {
				t.Errorf("got %+v with token %q, which becomes %q, want %+v", e, r.token(), e.at(token), tc)
			}
		})
	}
	mixed := &registration{verb: "validate", object: stored(t, `{"webhooks":[
		{"rules":[{"resources":["policies"]}],"clientConfig":{"service":{"path":"/validate/policies/`+token+`"}}},
		{"rules":[{"resources":["policysets"]}],"clientConfig":{"service":{"path":"/validate/policysets"}}}]}`)}
	if got := mixed.token(); got != "" {
		t.Errorf("a configuration of which one path was reset has token %q", got)
	}
}

// stored returns an object as it is read from the API server.
func stored(t *testing.T, text string) *object {
	t.Helper()
	k, err := NewController(Options{Config: &rest.Config{Host: "127.0.0.1:1"}, Metrics: NewMetrics(prometheus.NewRegistry()), Now: time.Now}, inMemory{})
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON([]byte(`{"kind":"ValidatingWebhookConfiguration","apiVersion":"admissionregistration.k8s.io/v1","metadata":{"name":"opgate"},` + text[1:])); err != nil {
		t.Fatal(err)
	}
	o := k.registrations[0].object
	if err := o.Informer.GetStore().Add(u); err != nil {
		t.Fatal(err)
	}
	return o
}
