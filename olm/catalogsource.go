package olm

// CatalogSource is what rules read of operators.coreos.com/v1alpha1 CatalogSource.
type CatalogSource struct {
	// Priority is 0 if it is not set, as for OLM.
	Priority int64
	// Image is empty for a catalog that is not served from an image.
	Image string
	// Healthy reports whether OLM's last connection to the catalog was ready.
	Healthy bool
}

// Deprecations are a catalog's messages on what is deprecated of a version; "" for what is not.
type Deprecations struct{ Package, Channel, Version string }

// connectionReady is the state of a connection that OLM resolves from.
const connectionReady = "READY"

// DecodeCatalogSource reads the JSON of a CatalogSource.
func DecodeCatalogSource(raw []byte) (*CatalogSource, Catalog, error) {
	stored, err := decodeObject[struct {
		Metadata ObjectMeta `json:"metadata"`
		Spec     struct {
			Priority int64  `json:"priority"`
			Image    string `json:"image"`
		} `json:"spec"`
		Status struct {
			Connection struct {
				State string `json:"lastObservedState"`
			} `json:"connectionState"`
		} `json:"status"`
	}](raw)
	if err != nil {
		return nil, Catalog{}, err
	}
	return &CatalogSource{Priority: stored.Spec.Priority, Image: stored.Spec.Image, Healthy: stored.Status.Connection.State == connectionReady},
		Catalog{Namespace: stored.Metadata.Namespace, Name: stored.Metadata.Name}, nil
}
