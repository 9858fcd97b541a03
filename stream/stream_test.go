package stream

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

var widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}

const widget = `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":%q,"namespace":"shop","resourceVersion":%q},"spec":{"kept":1,"dropped":[{},{}]}}`

func decodeWidget(raw []byte) (runtime.Object, error) {
	u := &unstructured.Unstructured{Object: Pick(raw, Fields{"metadata": {"name": nil, "namespace": nil, "resourceVersion": nil,
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
		if r.URL.Path != "/apis/example.com/v1/widgets" || r.URL.Query().Get("watch") != "true" || r.Header.Get("Accept") != "application/json" {
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
	informer := cache.NewSharedIndexInformer(client.ListerWatcher(widgets, decodeWidget), &unstructured.Unstructured{}, 0, nil)
	seen := make(chan string, 10)
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { seen <- "+" + obj.(*unstructured.Unstructured).GetName() },
		DeleteFunc: func(obj any) { seen <- "-" + obj.(*unstructured.Unstructured).GetName() },
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go informer.RunWithContext(ctx)
	for _, want := range []string{"+one", "+two", "-one"} {
		select {
		case got := <-seen:
			if got != want {
				t.Fatalf("%s, want %s", got, want)
			}
		case <-ctx.Done():
			t.Fatal(ctx.Err())
		}
	}
	for _, obj := range informer.GetStore().List() {
		if spec := obj.(*unstructured.Unstructured).Object["spec"].(map[string]any); len(spec) != 1 || spec["kept"] != int64(1) {
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
	got, err := client.ListerWatcher(widgets, decodeWidget).(cache.ListerWatcherWithContext).ListWithContext(t.Context(), metav1.ListOptions{})
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
	lw := client.ListerWatcher(widgets, decodeWidget).(cache.ListerWatcherWithContext)
	if _, err := lw.ListWithContext(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a list that is forbidden: %v", err)
	}
	w, err := lw.WatchWithContext(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if event := <-w.ResultChan(); event.Type != watch.Error || !apierrors.IsResourceExpired(apierrors.FromObject(event.Object)) {
		t.Errorf("%+v", event)
	}
}
