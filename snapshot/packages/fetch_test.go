package packages

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/opgate/opgate/olm"
)

func manifest(catalog string) string {
	return `{"apiVersion":"packages.operators.coreos.com/v1","kind":"PackageManifest","metadata":{"name":"etcd"},"status":{
		"packageName":"etcd","catalogSource":"` + catalog + `","catalogSourceNamespace":"olm"}}`
}

// TestFetch uses a server that responds like the package server: of each package it lists those of all catalogs.
func TestFetch(t *testing.T) {
	const base = "/apis/packages.operators.coreos.com/v1/namespaces/"
	const query = "/packagemanifests?fieldSelector=metadata.name%3Detcd"
	list := func(items ...string) string {
		return `{"kind":"PackageManifestList","apiVersion":"packages.operators.coreos.com/v1","metadata":{},"items":[` +
			strings.Join(items, ",") + `]}`
	}
	both := list(manifest("community"), manifest("vendor"))
	tests := map[string]struct {
		catalog olm.Catalog
		status  int
		answer  string
		request string
		want    string // the catalog, or the error
	}{
		"any catalog":                     {anyCatalog, 200, list(manifest("community")), base + "default" + query, "community"},
		"in the namespace of the catalog": {community, 200, both, base + "olm" + query, "community"},
		"another catalog first":           {vendor, 200, both, base + "olm" + query, "vendor"},
		"only the name of the catalog":    {olm.Catalog{Name: "vendor"}, 200, both, base + "default" + query, "vendor"},
		"not in the catalog": {olm.Catalog{Namespace: "olm", Name: "mine"}, 200, both, base + "olm" + query,
			"no such package in catalog olm/mine"},
		"in no catalog": {anyCatalog, 200, list(), base + "default" + query, "no such package in catalog any"},
		"the API is not served": {anyCatalog, 404, "404 page not found", base + "default" + query,
			"read PackageManifest: the server could not find the requested resource"},
		"the package server is away": {anyCatalog, 503,
			`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"ServiceUnavailable","code":503,"message":"service unavailable"}`,
			base + "default" + query, "read PackageManifest: service unavailable"},
		"the answer is about something else": {anyCatalog, 200,
			list(strings.ReplaceAll(manifest("community"), "etcd", "redis")), base + "default" + query,
			"no such package in catalog any"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.String() != test.request {
					t.Errorf("request %s, want %s", r.URL, test.request)
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(test.status)
				_, _ = w.Write([]byte(test.answer))
			}))
			defer server.Close()
			client, err := dynamic.NewForConfig(&rest.Config{Host: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			p, err := Fetch(t.Context(), client, "etcd", test.catalog)
			got := ""
			if err != nil {
				got = err.Error()
			} else {
				got = p.Catalog.Name
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
