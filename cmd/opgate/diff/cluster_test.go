package diff

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// TestH3ListsAreRead: what is installed is listed in pages that fit into memory, however large its objects are.
func TestH3ListsAreRead(t *testing.T) {
	const most = 24
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from, _ := strconv.Atoi(r.URL.Query().Get("continue")) // "" for the first page
		if limit, err := strconv.Atoi(r.URL.Query().Get("limit")); err != nil || limit < 1 || limit > most {
			t.Errorf("limit %q, want at most %d", r.URL.Query().Get("limit"), most)
		}
		next := ""
		if from < 2 {
			next = strconv.Itoa(from + 1)
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"apiVersion":"v1","kind":"List","metadata":{"continue":%q},"items":[{"apiVersion":"v1","kind":"A","metadata":{"name":"a%d"}}]}`, next, from)
	}))
	defer server.Close()
	client, err := dynamic.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	read := 0
	if err := (&cluster{lists: client}).each(t.Context(), installed, "shop", func([]byte) error { read++; return nil }); err != nil || read != 3 {
		t.Errorf("%d objects are read, want 3: %v", read, err)
	}
}
