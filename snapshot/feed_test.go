package snapshot

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/opgate/opgate/stream"
)

// TestFeedWithoutOptionalKind: an API server that does not serve an optional kind yet does not keep the gate closed,
// and the kind counts as soon as it is served.
func TestFeedWithoutOptionalKind(t *testing.T) {
	var served atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch optional := strings.HasSuffix(r.URL.Path, "/v2/operatorconditions"); {
		case optional && !served.Load():
			w.WriteHeader(http.StatusNotFound)
			_, _ = fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
		case optional:
			serveKind(w, r, `{"metadata":{"namespace":"shop","name":"etcd.v1","resourceVersion":"1"}}`)
		default:
			serveKind(w, r, "")
		}
	}))
	t.Cleanup(server.Close)
	client, err := stream.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	store := &Store{}
	feed := NewFeed(FeedOptions{Client: client, Store: store, Log: logr.Discard(), Now: time.Now})
	feed.absentPause = time.Millisecond
	var running sync.WaitGroup
	running.Go(func() {
		if err := feed.Start(t.Context()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(running.Wait)
	if err := store.Until(t.Context(), func(*Snapshot) bool { return true }); err != nil {
		t.Fatal(err)
	}
	served.Store(true)
	key := types.NamespacedName{Namespace: "shop", Name: "etcd.v1"}
	if err := store.Until(t.Context(),
		func(s *Snapshot) bool { return s.Find(OperatorConditions, key) != nil }); err != nil {
		t.Fatal(err)
	}
}

// TestO15FirstSnapshotHasPolicies: there is no snapshot before Policies, which suspend others, are listed.
func TestO15FirstSnapshotHasPolicies(t *testing.T) {
	var missing atomic.Int32
	for _, kind := range kinds {
		if kind.Readers != Leader && !kind.Own && kind != Policies {
			missing.Add(1)
		}
	}
	asked := make(chan struct{})
	var once sync.Map
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, "/v1/policies") {
			select {
			case <-asked:
			case <-r.Context().Done():
				return
			}
			serveKind(w, r, `{"metadata":{"namespace":"shop","name":"app","resourceVersion":"1"}}`)
			return
		}
		if _, again := once.LoadOrStore(r.URL.Path, true); !again && missing.Add(-1) == 0 {
			close(asked)
		}
		serveKind(w, r, "")
	}))
	t.Cleanup(server.Close)
	client, err := stream.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	store := &Store{}
	feed := NewFeed(FeedOptions{Client: client, Store: store, Ordering: true, Log: logr.Discard(), Now: time.Now})
	var running sync.WaitGroup
	running.Go(func() {
		if err := feed.Start(t.Context()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(running.Wait)
	err = store.Until(t.Context(), func(s *Snapshot) bool {
		if s.Policy(types.NamespacedName{Namespace: "shop", Name: "app"}) == nil {
			t.Error("a snapshot without the Policy")
		}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
}

// serveKind answers lists and watches of a kind of which there is one object, or none if it is empty.
func serveKind(w http.ResponseWriter, r *http.Request, object string) {
	if r.URL.Query().Get("watch") == "" {
		_, _ = fmt.Fprintf(w, `{"metadata":{"resourceVersion":"1"},"items":[%s]}`, object)
		return
	}
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		if object != "" {
			_, _ = fmt.Fprintf(w, `{"type":"ADDED","object":%s}`, object)
		}
		const end = `{"metadata":{"resourceVersion":"1","annotations":{"k8s.io/initial-events-end":"true"}}}`
		_, _ = fmt.Fprintf(w, `{"type":"BOOKMARK","object":%s}`, end)
	}
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}
