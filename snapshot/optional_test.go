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

// definitionOf returns the JSON of the definition of a kind, in a resourceVersion.
func definitionOf(kind *Kind, version string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q,"resourceVersion":%q},"spec":{"group":%q,"scope":"Cluster",
		"names":{"kind":%q,"plural":%q},"versions":[{"name":"v1","served":true,"storage":true}]},
		"status":{"conditions":[{"type":"Established","status":"True"}]}}`,
		kind.Resource+"."+kind.Group, version, kind.Group, kind.Kind, kind.Resource)
}

// TestFeedWithoutDefinition: what only the leader needs is not asked for before its definition is established, and
// after it is deleted; a kind that may not be watched is waited for by nothing.
func TestFeedWithoutDefinition(t *testing.T) {
	var asked atomic.Int32
	defined := make(chan string)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.HasSuffix(r.URL.Path, "/clusterobjectsets"), strings.HasSuffix(r.URL.Path, "/deployments"):
			t.Errorf("asked for %s", r.URL.Path)
		case strings.HasSuffix(r.URL.Path, "/clusterextensions"):
			asked.Add(1)
			serveKind(w, r, `{"metadata":{"name":"etcd","resourceVersion":"7"},"spec":{"namespace":"shop",
				"source":{"sourceType":"Catalog","catalog":{"packageName":"etcd"}}}}`)
		case strings.HasSuffix(r.URL.Path, "/customresourcedefinitions") && r.URL.Query().Get("watch") != "":
			_, _ = fmt.Fprint(w, `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"1",
				"annotations":{"k8s.io/initial-events-end":"true"}}}}`)
			for {
				w.(http.Flusher).Flush()
				select {
				case event := <-defined:
					_, _ = fmt.Fprint(w, event)
				case <-r.Context().Done():
					return
				}
			}
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
	feed := NewFeed(FeedOptions{Client: client, Store: store, Log: logr.Discard(), Now: time.Now,
		Omitted: []*Kind{Deployments}})
	feed.Lead()
	var running sync.WaitGroup
	running.Go(func() {
		if err := feed.Start(t.Context()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(running.Wait)
	until := func(state func(*Snapshot) bool) {
		t.Helper()
		if err := store.Until(t.Context(), state); err != nil {
			t.Fatal(err)
		}
	}
	until(func(s *Snapshot) bool {
		return s.Synced(ClusterExtensions, ClusterObjectSets, Deployments, CustomResourceDefinitions)
	})
	if asked.Load() > 0 || store.Load().Serves(ClusterExtensions) {
		t.Error("ClusterExtensions were asked for without their definition")
	}
	defined <- fmt.Sprintf(`{"type":"ADDED","object":%s}`, definitionOf(ClusterExtensions, "2"))
	key := types.NamespacedName{Name: "etcd"}
	until(func(s *Snapshot) bool { return s.Find(ClusterExtensions, key) != nil })
	if found := store.Load().Find(ClusterExtensions, key).Migrated(); found == nil || !found.Of("etcd", "shop") {
		t.Errorf("got %+v", found)
	}
	defined <- fmt.Sprintf(`{"type":"DELETED","object":%s}`, definitionOf(ClusterExtensions, "8"))
	until(func(s *Snapshot) bool { return s.Find(ClusterExtensions, key) == nil && !s.Serves(ClusterExtensions) })
}
