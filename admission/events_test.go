package admission

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	eventsv1 "k8s.io/api/events/v1"
	toolsevents "k8s.io/client-go/tools/events"

	"github.com/opgate/opgate/admission/scenario/play"
	"github.com/opgate/opgate/internal/events"
)

// sink keeps what would be sent.
type sink struct {
	toolsevents.EventSink
	mu   sync.Mutex
	sent []string
}

func (s *sink) Create(_ context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	line := e.Type + " " + e.Reason + " on " + e.Regarding.Kind + " " + e.Regarding.Namespace + "/" + e.Regarding.Name +
		" " + string(e.Regarding.UID)
	if e.Related != nil {
		line += " for " + e.Related.Kind + " " + e.Related.Namespace + "/" + e.Related.Name
	}
	s.sent = append(s.sent, line+": "+e.Note)
	return e, nil
}

// TestEvents sends the write of scenarios, and once more, through handlers with a recorder.
func TestEvents(t *testing.T) {
	const denied = `etcdoperator.v0.9.4 is not allowed by OperatorPolicy policies/etcd (bundle/version): allowed is etcdoperator.v0.9.2`
	byRequest := func(*http.Request) bool { return false }
	for _, c := range []struct {
		name, scenario string
		user           string
		dryRun         bool
		stored         bool // the object exists
		opgate         string
		authenticated  func(*http.Request) bool
		want           []string
	}{
		{name: "a refused approval", scenario: "bundle-version",
			want: []string{"Warning Denied on InstallPlan shop/install-x7 uid-1 for OperatorPolicy policies/etcd: " +
				denied}},
		{name: "the same on a dry run", scenario: "bundle-version", dryRun: true},
		{name: "the same by another client than the API server", scenario: "bundle-version", authenticated: byRequest},
		{name: "the same by Opgate itself", scenario: "bundle-version", user: "opgate", opgate: "opgate"},
		{name: "a refused phase", scenario: "plan-status-phase",
			want: []string{"Warning Denied on InstallPlan shop/install-x7 uid-1 for OperatorPolicy policies/etcd: "}},
		{name: "an override", scenario: "plan-override",
			want: []string{`Warning Overridden on InstallPlan shop/install-x7 uid-1 for OperatorPolicy policies/etcd: ` +
				`by user "admin": overridden with reason "CVE-2026-1234, ticket 77" (plan/override): ` + denied}},
		{name: "an override on a dry run", scenario: "plan-override", dryRun: true},
		{name: "an override by a user without the right", scenario: "plan-override", user: "tenant",
			want: []string{"Warning Denied on InstallPlan shop/install-x7 uid-1 for OperatorPolicy policies/etcd: " +
				denied}},
		{name: "an approval with consent", scenario: "bundle-consent-annotated",
			want: []string{`Normal Approved on InstallPlan shop/install-x7 uid-1: by user "admin"; ` +
				`consent to etcdoperator.v0.9.4 sha256:`}},
		{name: "an approval by Opgate itself", scenario: "bundle-consent-annotated", user: "opgate", opgate: "opgate"},
		{name: "a Subscription that does not exist", scenario: "subscription-channel"},
		{name: "a Subscription that exists", scenario: "subscription-catalog-switched",
			want: []string{"Warning Denied on Subscription shop/etcd uid-1"}},
		{name: "a policy that does not exist", scenario: "operatorpolicy-field"},
		{name: "a policy that exists", scenario: "operatorpolicy-field", stored: true,
			want: []string{"Warning Denied on OperatorPolicy policies/etcd uid-1: "}},
	} {
		t.Run(c.name, func(t *testing.T) {
			sent := &sink{}
			recorder := events.NewRecorder(events.Options{Sink: sent, Instance: "opgate-0",
				Registry: prometheus.NewRegistry(), Now: time.Now})
			s := named(t, c.scenario)
			existing := slices.Concat(s.Cluster, s.Policies)
			for _, u := range existing {
				u.SetUID("uid-1")
			}
			if c.authenticated == nil {
				c.authenticated = byAPIServer
			}
			o := optionsOf(Options{Store: storeOf(t, existing...), Authorizer: overrideBy{"admin"},
				Authenticated: c.authenticated, Events: recorder})
			if c.opgate != "" {
				o.Identity = func() string { return c.opgate }
			}
			if c.user == "" {
				c.user = s.User
			}
			gate := New(o)
			old, object := written(t, s, existing)
			object.SetUID("uid-1")
			if c.stored {
				old = object.DeepCopy()
				old.Object["spec"] = map[string]any{}
			}
			status := s.Verb == "replace-status"
			body := reviewOf(t, c.user, status, old, raw(t, object))
			if c.dryRun {
				body = bytes.Replace(body, []byte(`"request":{`), []byte(`"request":{"dryRun":true,`), 1)
			}
			path := "/validate/" + play.ResourceOf(object)
			if status {
				path += "-status"
			}
			for range 2 {
				post(t, gate.Handlers()[path], body)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := recorder.Start(ctx); err != nil { // it sends what is queued
				t.Fatal(err)
			}
			if !slices.EqualFunc(sent.sent, c.want, strings.HasPrefix) {
				t.Errorf("events are\n  %s\nwant\n  %s", strings.Join(sent.sent, "\n  "), strings.Join(c.want, "\n  "))
			}
		})
	}
}
