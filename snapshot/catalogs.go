package snapshot

import (
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
)

// decodeCatalog decodes a CatalogSource, to which every namespace may refer. One that does not decode is not known to
// rules.
func decodeCatalog(raw []byte) (any, error) {
	c, err := olm.Decode[olm.CatalogSource](raw)
	if err != nil {
		return nil, err
	}
	c.Metadata = olm.ObjectMeta{Namespace: c.Metadata.Namespace, Name: c.Metadata.Name, UID: c.Metadata.UID}
	return c, nil
}

func addCatalog(to *rules.Cluster, _ string, value any) {
	c := value.(*olm.CatalogSource)
	to.Facts.AddCatalog(olm.Catalog{Namespace: c.Metadata.Namespace, Name: c.Metadata.Name}, c)
}

// decodePod decodes a pod of a CatalogSource, to which every namespace may refer. One that does not decode shows nothing
// of its image.
func decodePod(raw []byte) (any, error) {
	pod, err := olm.DecodeCatalogPod(raw)
	if err != nil || pod == nil {
		return nil, err
	}
	return pod, nil
}

func addPod(to *rules.Cluster, _ string, value any) {
	if pod, ok := value.(*olm.CatalogPod); ok {
		to.Facts.AddServed(pod.Catalog, pod.Digest)
	}
}

// decodeService decodes the Service of a CatalogSource, to which every namespace may refer.
func decodeService(raw []byte) (any, error) {
	service, err := olm.DecodeCatalogService(raw)
	if err != nil || service == nil {
		return nil, err
	}
	return service, nil
}

func addService(to *rules.Cluster, _ string, value any) {
	if service, ok := value.(*olm.CatalogService); ok {
		to.Facts.AddService(service)
	}
}
