package stream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

var widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}

const widget = `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":%q,"namespace":"shop","resourceVersion":%q},"spec":{"kept":1,"dropped":[{},{}]}}`

func decodeWidget(raw []byte) (runtime.Object, error) {
	u := &unstructured.Unstructured{Object: Pick(raw,
		Fields{"metadata": {"name": nil, "namespace": nil, "resourceVersion": nil,
			"annotations": {metav1.InitialEventsAnnotationKey: nil}}, "spec": {"kept": nil}})}
	u.SetGroupVersionKind(widgets.GroupVersion().WithKind("Widget"))
	return u, nil
}

// serve returns a client of a server with these responses.
func serve(t *testing.T, answer http.HandlerFunc) *Client {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	client, err := NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// TestInformer: an informer receives the existing objects, and changes, by a watch.
func TestInformer(t *testing.T) {
	client := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/apis/example.com/v1/widgets" || r.URL.Query().Get("watch") != "true" ||
			r.Header.Get("Accept") != "application/json" {
			t.Errorf("%s, Accept %s", r.URL, r.Header.Get("Accept"))
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"type":"ADDED","object":%s}`+"\n", fmt.Sprintf(widget, "one", "1"))
		fmt.Fprint(w, `{"type":"BOOKMARK","object":{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"resourceVersion":"1","annotations":{"k8s.io/initial-events-end":"true"}}}}`+"\n")
		fmt.Fprintf(w, `{"type":"ADDED","object":%s}`+"\n", fmt.Sprintf(widget, "two", "2"))
		fmt.Fprintf(w, `{"type":"DELETED","object":%s}`+"\n", fmt.Sprintf(widget, "one", "3"))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	informer := cache.NewSharedIndexInformer(client.Selecting(widgets, "", "", decodeWidget, nil), &unstructured.Unstructured{},
		0, nil)
	seen := make(chan string, 10)
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { seen <- "+" + obj.(*unstructured.Unstructured).GetName() },
		DeleteFunc: func(obj any) { seen <- "-" + obj.(*unstructured.Unstructured).GetName() },
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go informer.RunWithContext(ctx)
	for _, want := range []string{"+one", "+two", "-one"} {
		if got := <-seen; got != want {
			t.Fatalf("%s, want %s", got, want)
		}
	}
	for _, obj := range informer.GetStore().List() {
		if spec := obj.(*unstructured.Unstructured).Object["spec"].(map[string]any); len(spec) != 1 ||
			spec["kept"] != int64(1) {
			t.Errorf("%v is kept", spec)
		}
	}
}

func TestList(t *testing.T) {
	client := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"kind":"WidgetList","apiVersion":"example.com/v1","metadata":{"resourceVersion":"7","continue":"more"},"items":[%s,%s]}`,
			fmt.Sprintf(widget, "one", "1"), fmt.Sprintf(widget, "two", "2"))
	})
	got, err := client.Selecting(widgets, "", "", decodeWidget, nil).(cache.ListerWatcherWithContext).ListWithContext(
		t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if list := got.(*List); len(list.Items) != 2 || list.ResourceVersion != "7" || list.Continue != "more" {
		t.Errorf("%+v", list)
	}
}

// TestErrors: a refusal by the API server is returned as its error type, also during a watch.
func TestErrors(t *testing.T) {
	const status = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","reason":%q,"code":%d}`
	client := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("watch") == "true" {
			fmt.Fprintf(w, `{"type":"ERROR","object":%s}`, fmt.Sprintf(status, "Expired", 410))
			return
		}
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, status, "Forbidden", 403)
	})
	lw := client.Selecting(widgets, "", "", decodeWidget, nil).(cache.ListerWatcherWithContext)
	if _, err := lw.ListWithContext(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a list that is forbidden: %v", err)
	}
	w, err := lw.WatchWithContext(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if event := <-w.ResultChan(); event.Type != watch.Error ||
		!apierrors.IsResourceExpired(apierrors.FromObject(event.Object)) {
		t.Errorf("%+v", event)
	}
}

// TestListInPages reads a list in pages and, where the first page is too old to go on from, all again in one.
func TestListInPages(t *testing.T) {
	for name, tc := range map[string]struct {
		expired bool
		want    []string
	}{
		"pages":   {false, []string{"one", "two", "three"}},
		"expired": {true, []string{"four"}},
	} {
		t.Run(name, func(t *testing.T) {
			client := serve(t, func(w http.ResponseWriter, r *http.Request) {
				query := r.URL.Query()
				if r.URL.Path != "/apis/example.com/v1/namespaces/shop/widgets" ||
					query.Get("labelSelector") != "a=b" || query.Get("fieldSelector") != "metadata.name!=x" {
					t.Errorf("asked for %s", r.URL)
				}
				w.Header().Set("Content-Type", "application/json")
				next := query.Get("continue")
				switch {
				case next == "" && query.Get("limit") != "":
					fmt.Fprintf(w, `{"metadata":{"continue":"2","resourceVersion":"9"},"items":[%s,%s]}`,
						fmt.Sprintf(widget, "one", "1"), fmt.Sprintf(widget, "two", "2"))
				case next == "":
					fmt.Fprintf(w, `{"metadata":{"resourceVersion":"10"},"items":[%s]}`,
						fmt.Sprintf(widget, "four", "4"))
				case tc.expired:
					w.WriteHeader(http.StatusGone)
					fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}`)
				default:
					fmt.Fprintf(w, `{"metadata":{"resourceVersion":"9"},"items":[%s]}`,
						fmt.Sprintf(widget, "three", "3"))
				}
			})
			objects, err := client.List(t.Context(), widgets,
				Selection{Namespace: "shop", Labels: "a=b", Fields: "metadata.name!=x"}, decodeWidget)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, o := range objects {
				names = append(names, o.(*unstructured.Unstructured).GetName())
			}
			if !slices.Equal(names, tc.want) {
				t.Errorf("got %v, want %v", names, tc.want)
			}
		})
	}
}

// TestEach: one list of a namespace, each object as JSON, and what is larger than the limit is an error.
func TestEach(t *testing.T) {
	client := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/apis/example.com/v1/namespaces/shop/widgets" || r.URL.Query().Get("labelSelector") != "a=b" {
			t.Errorf("%s", r.URL)
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"kind":"WidgetList","items":[%s,%s]}`, fmt.Sprintf(widget, "one", "1"),
			fmt.Sprintf(widget, "two", "2"))
	})
	for limit, want := range map[int64]int{1 << 20: 2, 300: 1, 10: 0} {
		var seen []string
		err := client.Each(t.Context(), widgets, Selection{Namespace: "shop", Labels: "a=b"}, limit,
			func(raw []byte) error {
				seen = append(seen, string(raw))
				return nil
			})
		if len(seen) != want || (err == nil) != (want == 2) {
			t.Errorf("limit %d: %q, %v", limit, seen, err)
		}
	}
	stop := errors.New("enough")
	if err := client.Each(t.Context(), widgets, Selection{Namespace: "shop", Labels: "a=b"}, 1<<20,
		func([]byte) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("%v, want %v", err, stop)
	}
}

// TestGetForbidden has the API server's own words, which name the right.
func TestGetForbidden(t *testing.T) {
	client := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"details":{"kind":"widgets","name":"one"},`+
			`"message":"User \"bob\" cannot get resource \"widgets\""}`)
	})
	_, err := client.Get(t.Context(), widgets, types.NamespacedName{Namespace: "shop", Name: "one"})
	if !apierrors.IsForbidden(err) || err.Error() != `User "bob" cannot get resource "widgets"` {
		t.Errorf("got %v", err)
	}
}
