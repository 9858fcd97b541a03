package olm

import (
	"strings"
	"testing"
)

// TestO70CatalogService: only a Service that is as OLM makes it leads to the pods of a catalog.
func TestO70CatalogService(t *testing.T) {
	const made = `{"metadata":{"namespace":"olm","name":"vendor-hub","labels":{"olm.managed":"true","olm.service-spec-hash":"4cXH"}},` +
		`"spec":{"type":"ClusterIP","clusterIP":"10.0.0.1","selector":{"olm.catalogSource":"vendor.hub","olm.managed":"true"},` +
		`"ports":[{"name":"grpc","protocol":"TCP","port":50051,"targetPort":50051}]}}`
	for name, c := range map[string]struct{ old, new, selects string }{
		"as OLM makes it":         {"", "", "vendor.hub"},
		"other pods":              {`"olm.catalogSource":"vendor.hub","olm.managed":"true"`, `"app":"other"`, ""},
		"any pod of the catalog":  {`,"olm.managed":"true"},"ports"`, `},"ports"`, ""},
		"fewer pods":              {`"vendor.hub",`, `"vendor.hub","app":"other",`, ""},
		"no selector":             {`"selector":{"olm.catalogSource":"vendor.hub","olm.managed":"true"},`, "", ""},
		"another catalog":         {`"vendor.hub"`, `"vendor-hub"`, "vendor-hub"},
		"another port of the pod": {`"targetPort":50051`, `"targetPort":50052`, ""},
		"a port by its name":      {`"targetPort":50051`, `"targetPort":"grpc"`, ""},
		"another port":            {`"port":50051`, `"port":50052`, ""},
		"two ports":               {`"ports":[`, `"ports":[{"name":"other","port":1,"targetPort":1},`, ""},
		"no port":                 {`{"name":"grpc","protocol":"TCP","port":50051,"targetPort":50051}`, "", ""},
		"another protocol":        {`"TCP"`, `"SCTP"`, ""},
		"a name of DNS":           {`"type":"ClusterIP"`, `"type":"ExternalName","externalName":"other.example"`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if !strings.Contains(made, c.old) {
				t.Fatal("there is no such text")
			}
			s, err := DecodeCatalogService([]byte(strings.Replace(made, c.old, c.new, 1)))
			if err != nil || s == nil || s.Service != (Catalog{Namespace: "olm", Name: "vendor-hub"}) ||
				s.Selects != c.selects {
				t.Errorf("%+v (%v), want it to lead to %q", s, err, c.selects)
			}
		})
	}
	if s, err := DecodeCatalogService([]byte(strings.Replace(made, `"olm.service-spec-hash":"4cXH"`, `"a":"b"`, 1))); s != nil ||
		err != nil {
		t.Errorf("without OLM's label: %+v, %v", s, err)
	}
}
