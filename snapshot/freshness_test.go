package snapshot

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/opgate/opgate/stream"
)

// listed is a transport that answers each list with a resourceVersion and no object.
type listed string

// RoundTrip answers a request.
func (version listed) RoundTrip(r *http.Request) (*http.Response, error) {
	body := fmt.Sprintf(`{"metadata":{"resourceVersion":%q},"items":[]}`, string(version))
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

// list makes the watch of a kind one that has shown everything until now, and a resourceVersion.
func list(t *testing.T, kind *Kind, progress *stream.Progress, version string) {
	t.Helper()
	client, err := stream.NewForConfig(&rest.Config{Host: "http://api-server", Transport: listed(version)})
	if err != nil {
		t.Fatal(err)
	}
	from := client.Selecting(kind.GroupVersionResource(), "", "",
		func([]byte) (runtime.Object, error) { return &Object{}, nil }, progress)
	if _, err := from.(cache.ListerWatcherWithContext).ListWithContext(t.Context(), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
}

// want checks which kinds are stale.
func want(t *testing.T, store *Store, kinds ...*Kind) {
	t.Helper()
	if got := store.Stale(); !slices.Equal(got, kinds) {
		t.Errorf("stale are %q, want %q", Names(got), Names(kinds))
	}
}

// TestG1Stale: a kind is stale once one of its watches has shown no progress for the bound, whatever others have, and
// not before it has shown any.
func TestG1Stale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := NewStore(nil)
		policies := store.follow(OperatorPolicies, 10*time.Second)
		pods, others := store.follow(Pods, 10*time.Second), store.follow(Pods, 10*time.Second)
		if store.follow(Deployments, time.Second) != nil {
			t.Error("a kind that no verdict depends on is followed")
		}
		if got := store.Followed(); !slices.Equal(got, []*Kind{OperatorPolicies, Pods}) {
			t.Errorf("followed are %q", Names(got))
		}
		time.Sleep(time.Minute)
		want(t, store)
		list(t, OperatorPolicies, policies, "1")
		list(t, Pods, others, "1")
		list(t, Pods, pods, "1")
		time.Sleep(10 * time.Second)
		want(t, store)
		list(t, Pods, pods, "2")
		list(t, OperatorPolicies, policies, "2")
		time.Sleep(time.Millisecond)
		want(t, store, Pods)
		others.Forget()
		want(t, store)
		time.Sleep(time.Hour)
		want(t, store, OperatorPolicies, Pods)
		if store.failing(OperatorPolicies, time.Now()) {
			t.Error("only OperatorPolicies are taken for stale")
		}
		list(t, Pods, pods, "3")
		want(t, store, OperatorPolicies)
		if !store.failing(OperatorPolicies, time.Now()) ||
			store.failing(OperatorPolicies, time.Now().Add(-2*time.Hour)) {
			t.Error("whether reading them has failed since is not told apart")
		}
	})
}

// TestG1UnseenWrite: a kind of which a write is not shown in time is stale until it is, or until its watch has passed
// it.
func TestG1UnseenWrite(t *testing.T) {
	policy := func(version string) *Object {
		return read(OperatorPolicies, fmt.Sprintf(`{"metadata":{"name":"etcd","namespace":"policies","resourceVersion":%q},
			"spec":{"subscription":{"name":"etcd","namespace":"shop"}}}`, version))
	}
	wait := func(t *testing.T, store *Store, version string) {
		t.Helper()
		since, written := time.Now(), policy(version)
		err := store.Wait(t.Context(), OperatorPolicies, version, func(s *Snapshot) bool {
			return !Older(s.Object(OperatorPolicies, InNamespace("shop"), written.Key()).ResourceVersion, version)
		})
		if err == nil || time.Since(since) != 10*time.Second {
			t.Fatalf("%v after %s", err, time.Since(since))
		}
		want(t, store, OperatorPolicies)
	}
	synctest.Test(t, func(t *testing.T) {
		var b Builder
		store := NewStore(b.Put(time.Now(), policy("5")))
		wait(t, store, "6")
		store.replace(b.Put(time.Now(), policy("5"), read(Namespaces, `{"metadata":{"name":"shop"}}`)), &Change{})
		want(t, store, OperatorPolicies)
		store.replace(b.Put(time.Now(), policy("7")), &Change{})
		want(t, store)

		progress := store.follow(OperatorPolicies, time.Hour)
		wait(t, store, "8")
		list(t, OperatorPolicies, progress, "7")
		want(t, store, OperatorPolicies)
		list(t, OperatorPolicies, progress, "9")
		want(t, store)
	})
}
