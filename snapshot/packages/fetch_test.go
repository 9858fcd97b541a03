package packages

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
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

// TestFetch uses a server that responds like the package server: GET returns the package of any catalog.
func TestFetch(t *testing.T) {
	const base = "/apis/packages.operators.coreos.com/v1/namespaces/"
	notThere := `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"message":"not found","details":{"name":"etcd","kind":"packagemanifests"}}`
	list := `{"kind":"PackageManifestList","apiVersion":"packages.operators.coreos.com/v1","metadata":{},"items":[` +
		manifest("other") + "," + manifest("vendor") + `]}`
	tests := map[string]struct {
		catalog  olm.Catalog
		get      string
		status   int
		list     string
		requests []string
		want     string // the catalog, or the error
	}{
		"any catalog": {anyCatalog, manifest("community"), 200, "",
			[]string{base + "default/packagemanifests/etcd"}, "community"},
		"in the namespace of the catalog": {community, manifest("community"), 200, "",
			[]string{base + "olm/packagemanifests/etcd"}, "community"},
		"GET returns another catalog": {vendor, manifest("community"), 200, list,
			[]string{base + "olm/packagemanifests/etcd", base +
				"olm/packagemanifests?fieldSelector=metadata.name=etcd&labelSelector=catalog=vendor,catalog-namespace=olm"},
			"vendor"},
		"only the name of the catalog": {olm.Catalog{Name: "vendor"}, manifest("community"), 200, list,
			[]string{base + "default/packagemanifests/etcd", base +
				"default/packagemanifests?fieldSelector=metadata.name=etcd&labelSelector=catalog=vendor"}, "vendor"},
		"not in the catalog": {olm.Catalog{Namespace: "olm", Name: "mine"}, manifest("community"), 200,
			list, nil, "no such package in catalog olm/mine"},
		"in no catalog": {anyCatalog, notThere, 404, "", nil, "no such package in catalog any"},
		"the API is not served": {anyCatalog, "404 page not found", 404, "", nil,
			"PackageManifests are not served: the server could not find the requested resource"},
		"the package server is away": {anyCatalog,
			`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"ServiceUnavailable","code":503,"message":"service unavailable"}`, 503, "", nil, "read PackageManifest: service unavailable"},
		"the answer is about something else": {anyCatalog, strings.ReplaceAll(manifest("community"), "etcd", "redis"),
			200, `{"kind":"List","apiVersion":"v1","items":[]}`, nil, "no such package in catalog any"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var requests []string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				request := r.URL.Path
				if q := r.URL.Query(); len(q) > 0 {
					request += "?fieldSelector=" + q.Get("fieldSelector") + "&labelSelector=" + q.Get("labelSelector")
				}
				requests = append(requests, request)
				w.Header().Set("Content-Type", "application/json")
				if strings.HasSuffix(r.URL.Path, "/etcd") {
					w.WriteHeader(test.status)
					_, _ = w.Write([]byte(test.get))
					return
				}
				if !json.Valid([]byte(test.list)) {
					t.Errorf("unexpected request %s", request)
				}
				_, _ = w.Write([]byte(test.list))
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
			if test.requests != nil && !slices.Equal(requests, test.requests) {
				t.Errorf("requests %q, want %q", requests, test.requests)
			}
		})
	}
}
