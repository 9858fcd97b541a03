package events

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	eventsclient "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/rest"
	toolsevents "k8s.io/client-go/tools/events"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// server stores events like an API server: it refuses a name that exists, and, while refuse returns an error, all of
// them.
type server struct {
	mu     sync.Mutex
	stored map[string]*eventsv1.Event
	// asked counts the requests.
	asked  int
	refuse func(asked int) *apierrors.StatusError
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	w.Header().Set("Content-Type", "application/json")
	answer := func(code int, body any) {
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(body)
	}
	event := &eventsv1.Event{}
	if err := json.NewDecoder(r.Body).Decode(event); err != nil || r.Method != http.MethodPost {
		answer(http.StatusBadRequest, apierrors.NewBadRequest(fmt.Sprintf("%s: %v", r.Method, err)).Status())
		return
	}
	if s.refuse != nil {
		if err := s.refuse(s.asked); err != nil {
			answer(int(err.Status().Code), err.Status())
			return
		}
	}
	key := event.Namespace + "/" + event.Name
	if s.stored[key] != nil {
		answer(http.StatusConflict, apierrors.NewAlreadyExists(eventsv1.Resource("events"), event.Name).Status())
		return
	}
	s.stored[key] = event
	answer(http.StatusCreated, event)
}

// RoundTrip answers in memory: synthetic time advances only where every goroutine waits, and one that reads a socket
// does not count.
func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := httptest.NewRecorder()
	s.ServeHTTP(answer, r)
	return answer.Result(), nil
}

// test runs a test in synthetic time.
func test(t *testing.T, do func(t *testing.T, s *site)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { do(t, newSite(t)) })
}

// requests returns how many there were.
func (s *server) requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

// site is a recorder and the server that it sends to.
type site struct {
	*server
	*Recorder
	registry *prometheus.Registry
	now      time.Time
	sending  bool
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{server: &server{stored: map[string]*eventsv1.Event{}}, now: noon}
	s.restart(t)
	return s
}

// restart replaces the recorder by a new one.
func (s *site) restart(t *testing.T) {
	t.Helper()
	client, err := eventsclient.NewForConfig(&rest.Config{Host: "http://api-server", Transport: s.server, QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	s.registry, s.sending = prometheus.NewRegistry(), false
	s.Recorder = NewRecorder(Options{Sink: &toolsevents.EventSinkImpl{Interface: client}, Instance: "opgate-0",
		Registry: s.registry,
		Log:      logr.Discard(), Now: func() time.Time { return s.now }})
}

// send sends what is queued, and what is recorded from then on.
func (s *site) send(t *testing.T) {
	t.Helper()
	if !s.sending {
		s.sending = true
		go func() {
			if err := s.Start(t.Context()); err != nil {
				t.Error(err)
			}
		}()
	}
	synctest.Wait()
}

// wantRequests sends what is queued, and compares the number of requests and of events since the start.
func (s *site) wantRequests(t *testing.T, asked, stored int) {
	t.Helper()
	s.send(t)
	if s.asked != asked || len(s.stored) != stored {
		t.Errorf("%d requests and %d events, want %d and %d", s.asked, len(s.stored), asked, stored)
	}
}

func (s *site) wantResults(t *testing.T, want string) {
	t.Helper()
	families, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, metric := range families[0].GetMetric() {
		if n := metric.GetCounter().GetValue(); n > 0 {
			got = append(got, fmt.Sprintf("%s %v", metric.GetLabel()[0].GetValue(), n))
		}
	}
	if strings.Join(got, ", ") != want {
		t.Errorf("results are %q, want %q", got, want)
	}
}

// held is an event on a plan.
func held(plan, note string) Event {
	return Event{
		Regarding: corev1.ObjectReference{APIVersion: "operators.coreos.com/v1alpha1", Kind: "InstallPlan",
			Namespace: "shop", Name: plan, UID: types.UID("uid-" + plan)},
		Reason: Held, Action: Approve, Warning: true, Note: note,
	}
}

func TestEventAsSent(t *testing.T) {
	test(t, func(t *testing.T, s *site) {
		if !s.Record(held("install-x7", "it is held (bundle/version)")) {
			t.Error("it is dropped")
		}
		approved := held("install-x7", "it is allowed")
		approved.Reason, approved.Warning = Approved, false
		approved.Related = &corev1.ObjectReference{Kind: "OperatorPolicy", Namespace: "policies", Name: "etcd"}
		s.Record(approved)
		s.wantRequests(t, 2, 2)
		for name, event := range s.stored {
			if !strings.HasPrefix(name, "shop/install-x7.") || !event.EventTime.Time.Equal(noon) ||
				event.ReportingController != "opgate" || event.ReportingInstance != "opgate-0" ||
				event.Action != Approve || event.Regarding != approved.Regarding {
				t.Errorf("%s is %+v", name, event)
			}
			switch event.Reason {
			case Held:
				if event.Type != corev1.EventTypeWarning || event.Note != "it is held (bundle/version)" ||
					event.Related != nil {
					t.Errorf("%+v", event)
				}
			case Approved:
				if event.Type != corev1.EventTypeNormal || event.Note != "it is allowed" ||
					*event.Related != *approved.Related {
					t.Errorf("%+v", event)
				}
			default:
				t.Errorf("reason %s", event.Reason)
			}
		}
	})
}

// TestOncePerReason: what is said again costs nothing, on this replica; on another one, or after a restart, one
// request.
func TestOncePerReason(t *testing.T) {
	test(t, func(t *testing.T, s *site) {
		for range 1000 {
			s.Record(held("a", "not version 2"))
			s.Record(held("a", "not version 3"))
			s.Record(held("b", "not version 2"))
		}
		s.wantRequests(t, 3, 3)
		s.Record(held("a", "not version 2"))
		s.wantRequests(t, 3, 3)
		for _, version := range []string{"1", "2", "2"} {
			restored := held("a", "restored")
			restored.Occurrence = version
			s.Record(restored)
		}
		s.wantRequests(t, 5, 5)
		s.wantResults(t, "created 5")

		s.restart(t)
		s.now = s.now.Add(time.Minute)
		s.Record(held("a", "not version 2"))
		s.wantRequests(t, 6, 5)
		s.wantResults(t, "repeated 1")
	})
}

// TestSaidAgainMuchLater: the API server has deleted the event by then.
func TestSaidAgainMuchLater(t *testing.T) {
	test(t, func(t *testing.T, s *site) {
		for range 10 {
			s.Record(held("a", "not version 2"))
			s.now = s.now.Add(forgetAfter - time.Second) // it is never away for long enough to be new
		}
		s.wantRequests(t, 1, 1)
		clear(s.stored)
		s.now = s.now.Add(forgetAfter)
		s.Record(held("a", "not version 2"))
		s.wantRequests(t, 2, 1)
	})
}

// TestAttackStormOfRefusals: a user who varies what is refused gets few events, which take none from other objects or
// reasons.
func TestAttackStormOfRefusals(t *testing.T) {
	test(t, func(t *testing.T, s *site) {
		storm := func() (recorded int) {
			for i := range 10_000 {
				denied := held("a", fmt.Sprintf("channel %d is not allowed (subscription/channel)", i))
				if denied.Reason = Denied; s.Record(denied) {
					recorded++
				}
			}
			return recorded
		}
		if n := storm(); n != maxPerObject {
			t.Errorf("%d events are recorded, want %d", n, maxPerObject)
		}
		if !s.Record(held("a", "held")) || !s.Record(held("b", "held")) {
			t.Error("other events are dropped")
		}
		s.wantRequests(t, maxPerObject+2, maxPerObject+2)
		s.now = s.now.Add(forgetAfter + time.Second)
		if n := storm(); n != maxPerObject {
			t.Errorf("an hour later %d events are recorded, want %d", n, maxPerObject)
		}
	})
}

// TestAttackMemoryIsBounded records on more objects than are remembered.
func TestAttackMemoryIsBounded(t *testing.T) {
	test(t, func(t *testing.T, s *site) {
		for i := range 3 * maxRemembered {
			s.Record(held(fmt.Sprint(i), "held"))
			next, _ := s.queue.Get()
			s.queue.Done(next)
		}
		if n, counted := len(s.recorded.Keys()), len(s.counted.Keys()); n != maxRemembered || counted != maxRemembered {
			t.Errorf("%d events and %d objects are remembered, want %d", n, counted, maxRemembered)
		}
	})
}

// TestFullQueue: recording never blocks, and what was dropped may be recorded again.
func TestFullQueue(t *testing.T) {
	test(t, func(t *testing.T, s *site) {
		for i := range maxQueued {
			if !s.Record(held(fmt.Sprint(i), "held")) {
				t.Fatalf("event %d is dropped", i)
			}
		}
		if s.Record(held("late", "held")) {
			t.Error("the queue has no end")
		}
		s.wantRequests(t, maxQueued, maxQueued)
		if !s.Record(held("late", "held")) {
			t.Error("it is dropped once more")
		}
		s.wantRequests(t, maxQueued+1, maxQueued+1)
		s.wantResults(t, fmt.Sprintf("created %d, dropped 1", maxQueued+1))
	})
}

func TestErrors(t *testing.T) {
	forbidden := apierrors.NewForbidden(eventsv1.Resource("events"), "", nil)
	unavailable := apierrors.NewServiceUnavailable("etcd is away")
	for _, tc := range []struct {
		name   string
		refuse func(asked int) *apierrors.StatusError
		// asked is the number of requests for an event, again for one that is recorded once more.
		asked, again int
		results      string
	}{
		{"for a moment", func(asked int) *apierrors.StatusError {
			if asked < 3 {
				return unavailable
			}
			return nil
		}, 3, 3, "created 1"},
		{"for long", func(int) *apierrors.StatusError { return unavailable }, backoff.Steps, 2 * backoff.Steps, "failed 2"},
		{"for good", func(int) *apierrors.StatusError { return forbidden }, 1, 1, "failed 1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			test(t, func(t *testing.T, s *site) {
				s.refuse = tc.refuse
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error)
				go func() { ended <- s.Start(ctx) }()
				for _, asked := range []int{tc.asked, tc.again} {
					s.Record(held("a", "held"))
					time.Sleep(time.Hour) // all attempts are over
					if s.requests() != asked {
						t.Errorf("%d requests, want %d", s.requests(), asked)
					}
				}
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
				s.wantResults(t, tc.results)
			})
		})
	}
}

// TestEnding: what is queued when the process ends is tried again for a few seconds, and then given up.
func TestEnding(t *testing.T) {
	test(t, func(t *testing.T, s *site) {
		s.refuse = func(int) *apierrors.StatusError { return apierrors.NewServiceUnavailable("etcd is away") }
		for i := range 10 * senders {
			s.Record(held(fmt.Sprint(i), "held"))
		}
		began := time.Now()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.Start(ended); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != shutdownTimeout {
			t.Errorf("the process ends after %s, want %s", took, shutdownTimeout)
		}
		s.wantResults(t, fmt.Sprintf("failed %d", 10*senders))
	})
}

// TestAttackHostileTexts: whatever a note and names hold, the API server accepts the event and a terminal shows it.
func TestAttackHostileTexts(t *testing.T) {
	test(t, func(t *testing.T, s *site) {
		s.Record(held("a", "\x1b[2J\x1b]0;owned\x07\u202eetcd\xff\n"+strings.Repeat("é", 1<<20)))
		s.Record(held(strings.Repeat("a.", 126)+"b", "held"))
		s.wantRequests(t, 2, 2)
		for name, event := range s.stored {
			if len(event.Note) > maxNote || !utf8.ValidString(event.Note) ||
				strings.ContainsFunc(event.Note, func(r rune) bool { return r < ' ' || r == '\u202e' }) {
				t.Errorf("the note of %s is %q", name, event.Note)
			}
			if problems := validation.IsDNS1123Subdomain(event.Name); len(problems) > 0 {
				t.Errorf("name %s: %q", event.Name, problems)
			}
		}
	})
}
