package olm

import (
	"encoding/json"
	"maps"
	"strings"

	"github.com/opgate/opgate/internal/metakey"
)

// registryPort is the port of such a Service, and of the pods.
const registryPort = "50051"

// Service returns the namespace and the name of the Service by which OLM connects to a catalog that it runs from an image
// (Service in operator-lifecycle-manager pkg/controller/registry/reconciler/grpc.go). Several catalogs may have the same.
func (c Catalog) Service() Catalog {
	return Catalog{Namespace: c.Namespace, Name: strings.ReplaceAll(c.Name, ".", "-")}
}

// CatalogService is a Service that OLM has made for a CatalogSource.
type CatalogService struct {
	// Service is its namespace and name.
	Service Catalog
	// Selects is the name of the CatalogSource to whose pods it leads as OLM has made it; "" for one that was changed:
	// OLM compares the label, and not the spec.
	Selects string
}

// DecodeCatalogService reads the JSON of a Service. It returns nil for one without OLM's label.
func DecodeCatalogService(raw []byte) (*CatalogService, error) {
	o, err := decodeObject[struct {
		Metadata struct {
			Namespace string `json:"namespace"`
			Name      string `json:"name"`
			Labels    struct {
				Hash *string `json:"olm.service-spec-hash"`
			} `json:"labels"`
		} `json:"metadata"`
		Spec struct {
			Type     string            `json:"type"`
			Selector map[string]string `json:"selector"`
			Ports    []struct {
				Protocol   string          `json:"protocol"`
				Port       json.RawMessage `json:"port"`
				TargetPort json.RawMessage `json:"targetPort"`
			} `json:"ports"`
		} `json:"spec"`
	}](raw)
	if err != nil {
		return nil, err
	}
	if o.Metadata.Labels.Hash == nil {
		return nil, nil //nolint:nilnil // there is neither
	}
	s := &CatalogService{Service: Catalog{Namespace: o.Metadata.Namespace, Name: o.Metadata.Name}}
	name := o.Spec.Selector[metakey.CatalogSource]
	if len(o.Spec.Ports) != 1 || o.Spec.Type != "" && o.Spec.Type != "ClusterIP" ||
		!maps.Equal(o.Spec.Selector, map[string]string{metakey.CatalogSource: name, metakey.OLMManaged: "true"}) {
		return s, nil
	}
	if p := o.Spec.Ports[0]; string(p.Port) == registryPort && string(p.TargetPort) == registryPort &&
		(p.Protocol == "" || p.Protocol == "TCP") {
		s.Selects = name
	}
	return s, nil
}
